"""The options of table `[model]` in Korean; the package says how."""

from __future__ import annotations

from mlxceld.documents.language import OptionText

TEXTS: dict[str, OptionText] = {
    "model.path": OptionText(
        short="모델: MLX 폴더 또는 GGUF 파일",
        long="`config.json`과 safetensors 가중치가 있는 폴더, 또는 llama 아키텍처의 "
        "GGUF 파일(F16, Q4_0, Q4_1, Q8_0)입니다. TOML 파일에 쓴 이름은 그 파일이 "
        "있는 폴더를, 플래그나 변수에 쓴 이름은 현재 폴더를 기준으로 합니다.",
        default="없음; 여기 또는 `--hf-repo`로 모델을 지정해야 함",
    ),
    "model.hf_repo": OptionText(
        short="Hugging Face의 모델 저장소",
        long="MLX 가중치가 있는 저장소의 `owner/name`입니다. Hugging Face 캐시에 "
        "없으면 그곳에 내려받습니다.",
        default="없음",
    ),
    "model.hf_token": OptionText(
        short="Hugging Face 접근 토큰",
        long="토큰이 필요한 저장소에 씁니다. 플래그는 프로세스 목록에 보이므로 "
        "변수나 파일을 쓰는 편이 좋습니다.",
        default="없음",
    ),
    "model.offline": OptionText(
        short="모델을 찾을 때 네트워크를 쓰지 않음",
        long="`--hf-repo`를 쓸 때 Hugging Face 캐시에 이미 있는 것만 사용합니다.",
    ),
    "model.alias": OptionText(
        short="API에서 쓰는 모델 이름",
        long="llama-server처럼 정렬된 집합입니다. 알파벳 순으로 첫 이름이 응답에 "
        "담기는 id이고 나머지는 별칭으로 나열됩니다. 별칭이 없으면 지정한 그대로의 "
        "모델 경로나 저장소가 id입니다.",
    ),
    "model.tags": OptionText(
        short="API에서 쓰는 모델 태그",
        long="정보로만 쓰이며 `/v1/models`에 나열됩니다.",
    ),
    "model.jinja": OptionText(
        short="모델의 Jinja 템플릿으로 채팅을 렌더링함",
        long="끄면 모델에 무엇이 있든 채팅을 ChatML 형식으로 렌더링합니다. "
        "`--chat-template`으로 준 템플릿은 그래도 사용합니다.",
    ),
    "model.chat_template": OptionText(
        short="채팅 템플릿: Jinja 텍스트, 또는 `chatml`이나 `llama3` 같은 이름",
        long="모델에 들어 있는 템플릿 대신 사용합니다. 이름은 llama-server의 것으로, "
        "템플릿이 없는 모델을 위한 것입니다. 모르는 이름은 시작할 때 쓸 수 있는 "
        "이름과 함께 거부합니다.",
        default="모델에 들어 있는 템플릿",
    ),
    "model.chat_template_file": OptionText(
        short="Jinja 채팅 템플릿 파일",
        long="모델에 들어 있는 템플릿 대신 사용합니다. TOML 파일에 쓴 이름은 그 "
        "파일이 있는 폴더를 기준으로 합니다.",
        default="모델에 들어 있는 템플릿",
    ),
    "model.chat_template_kwargs": OptionText(
        short="채팅 템플릿에 넘기는 변수, JSON 객체",
        long='예를 들면 `{"enable_thinking": false}`입니다. 요청은 여기에 더하거나 '
        "덮어쓸 수 있습니다. TOML에서는 테이블도 쓸 수 있습니다.",
    ),
    "model.reasoning_format": OptionText(
        short="채팅 응답에서 모델의 사고 과정을 넣는 곳",
        long="사고 과정을 나타내는 표시는 채팅 템플릿이 정합니다. 요청에서 달리 정할 "
        "수 있습니다.",
        choices={
            "none": "모델이 쓴 그대로 텍스트에 남김",
            "deepseek": "별도의 필드 `reasoning_content`에 넣음",
            "deepseek-legacy": "그 필드와 텍스트 양쪽에 넣음",
            "auto": "`deepseek`의 다른 이름",
        },
    ),
    "model.reasoning": OptionText(
        short="사고할 수 있는 모델이 채팅에서 사고할지 여부",
        long="템플릿의 변수 `enable_thinking`입니다. 이 변수를 모르는 템플릿은 "
        "스스로 정합니다. 요청에서 `chat_template_kwargs`로 달리 정할 수 있습니다.",
        choices={
            "on": "모델이 사고하도록 템플릿에 알림",
            "off": "사고하지 않도록 알림; 템플릿이 연 사고 과정은 닫음",
            "auto": "`--reasoning-budget`이 0일 때를 빼고 on과 같음",
        },
    ),
    "model.reasoning_effort": OptionText(
        short="사고 강도를 아는 모델이 채팅에서 사고하는 강도",
        long="템플릿의 변수 `reasoning_effort`이며 예를 들면 `low`나 `high`입니다. "
        "요청에서 달리 정할 수 있습니다.",
        default="템플릿이 정한 값",
    ),
    "model.reasoning_budget": OptionText(
        short="채팅에서 사고에 쓰는 토큰 수: -1은 제한 없음, 0은 사고하지 않음",
        long="사고 과정이 이 토큰 수에 이르면 끝냅니다. 사고를 끝내는 표시를 넣고 "
        "모델은 답변을 이어 갑니다. 0은 `--reasoning off`와 같습니다. 요청에서 "
        "`reasoning_budget_tokens`나 `thinking_budget_tokens`로 달리 정할 수 있습니다.",
    ),
    "model.reasoning_budget_message": OptionText(
        short="예산을 다 쓴 사고 과정의 끝 앞에 넣는 텍스트",
        long="모델은 이것을 자신의 마지막 생각으로 읽습니다. 예를 들면 `I have to "
        "answer now.`입니다. 요청에서 `reasoning_budget_message`로 달리 정할 수 "
        "있습니다.",
        default="아무것도 넣지 않음",
    ),
    "model.reasoning_preserve": OptionText(
        short="이전 답변의 사고 과정을 템플릿에 보여 줌",
        long="템플릿의 변수 `preserve_thinking`, `clear_thinking`, "
        "`truncate_history_thinking`입니다. 이 변수들을 모르는 템플릿은 스스로 "
        "정합니다. 끄면 템플릿이 무엇을 하든 이전 답변의 사고 과정은 빠집니다.",
    ),
    "model.skip_chat_parsing": OptionText(
        short="채팅 응답을 모델이 쓴 그대로 둠",
        long="사고 과정도 도구 호출도 텍스트에서 떼어 내지 않습니다. 모두 "
        "content입니다.",
    ),
    "model.prefill_assistant": OptionText(
        short="채팅 끝에 있는 assistant 메시지를 이어서 씀",
        long="끄면 그런 메시지는 이미 준 답변이고 모델은 새 답변을 씁니다. "
        "`continue_final_message`를 쓴 요청은 어느 쪽이든 처리합니다.",
    ),
}
"""By key, in the order of the option table."""
