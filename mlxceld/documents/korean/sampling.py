"""The options of table `[sampling]` in Korean; the package says how."""

from __future__ import annotations

from mlxceld.documents.language import OptionText

TEXTS: dict[str, OptionText] = {
    "sampling.seed": OptionText(
        short="난수의 시드; -1은 요청마다 새 시드",
        long="시드와 요청이 같으면 함께 무엇이 실행되든 답변이 같습니다.",
    ),
    "sampling.temperature": OptionText(
        short="온도; 0은 언제나 가장 확률이 높은 토큰을 고름",
        long="토큰을 뽑기 전에 로짓을 이 값으로 나눕니다.",
    ),
    "sampling.top_k": OptionText(
        short="확률이 가장 높은 k개의 토큰만 남김; 0과 -1은 모두 남김",
        long="필터 가운데 첫 번째입니다.",
    ),
    "sampling.top_p": OptionText(
        short="확률의 합이 이 값이 되는 상위 토큰만 남김",
        long="1은 모두 남깁니다.",
    ),
    "sampling.min_p": OptionText(
        short="가장 높은 확률의 이 비율보다 낮은 토큰을 버림",
        long="0은 모두 남깁니다.",
    ),
    "sampling.typical_p": OptionText(
        short="국소 전형성(locally typical) 샘플링",
        long="의외성이 기댓값에 가까운 토큰부터 확률의 합이 이 값이 될 때까지 "
        "남깁니다. 1은 모두 남깁니다.",
    ),
    "sampling.repeat_last_n": OptionText(
        short="페널티가 보는 범위; 0은 끔, -1은 컨텍스트 전체",
        long="세 가지 페널티가 살펴보는 최근 토큰의 수입니다.",
    ),
    "sampling.repeat_penalty": OptionText(
        short="이미 나온 토큰에 대한 페널티; 1은 끔",
        long="범위 안에 있는 토큰의 양의 로짓은 이 값으로 나누고 음의 로짓에는 "
        "곱합니다.",
    ),
    "sampling.presence_penalty": OptionText(
        short="이미 나온 모든 토큰의 로짓에서 빼는 값; 0은 끔",
        long="범위 안에 몇 번 나왔든 토큰마다 한 번만 뺍니다.",
    ),
    "sampling.frequency_penalty": OptionText(
        short="토큰이 나온 횟수만큼 로짓에서 빼는 값; 0은 끔",
        long="범위 안에 나온 횟수를 셉니다.",
    ),
    "sampling.ignore_eos": OptionText(
        short="텍스트 끝 토큰에서 답변을 끝내지 않음",
        long="답변은 제한에 이를 때까지 이어집니다. 측정에 씁니다.",
    ),
    "sampling.logit_bias": OptionText(
        short="토큰의 로짓에 더하는 수",
        long="`15043+1`은 토큰 15043이 나올 가능성을 높이고 `15043-inf`는 나오지 "
        "않게 합니다. 플래그는 여러 번 쓸 수 있습니다. `logit_bias`를 스스로 정하지 "
        "않은 요청에 적용합니다.",
    ),
    "sampling.samplers": OptionText(
        short="사용할 샘플러와 그 순서",
        long="세미콜론으로 구분한 이름, 또는 그 글자입니다: penalties (e), dry (d), "
        "top_n_sigma (s), top_k (k), typ_p (y), top_p (p), min_p (m), xtc (x), "
        "temperature (t), adaptive_p (a). 이름이 없는 샘플러는 아무 일도 하지 "
        "않습니다.",
    ),
    "sampling.top_n_sigma": OptionText(
        short="가장 높은 로짓에서 표준편차의 n배 안에 있는 토큰만 남김",
        long="0 이하는 모두 남깁니다.",
    ),
    "sampling.xtc_probability": OptionText(
        short="XTC가 가장 유력한 토큰들을 버리는 빈도; 0은 버리지 않음",
        long="작동하면 `xtc_threshold`보다 높은 토큰을 가장 낮은 것 하나만 남기고 "
        "모두 버립니다.",
    ),
    "sampling.xtc_threshold": OptionText(
        short="XTC가 토큰을 버리는 확률의 기준",
        long="0.5보다 크면 아무것도 버리지 않습니다.",
    ),
    "sampling.dry_multiplier": OptionText(
        short="반복에 대한 페널티(DRY)의 세기; 0은 끔",
        long="길이 n의 반복을 이어 갈 토큰은 multiplier x base ^ (n - allowed "
        "length)만큼 잃습니다.",
    ),
    "sampling.dry_base": OptionText(
        short="DRY 페널티의 밑",
        long="반복의 길이에 따라 페널티가 커지는 속도입니다.",
    ),
    "sampling.dry_allowed_length": OptionText(
        short="DRY가 허용하는 반복의 길이",
        long="이보다 긴 반복에는 페널티가 붙습니다.",
    ),
    "sampling.dry_penalty_last_n": OptionText(
        short="DRY가 보는 범위; 0은 끔, -1은 컨텍스트 전체",
        long="반복을 찾아보는 최근 토큰의 수입니다.",
    ),
    "sampling.dry_sequence_breakers": OptionText(
        short="DRY에서 반복을 끊는 텍스트",
        long="플래그는 여러 번 쓸 수 있으며, 첫 번째가 기본값들을 대신합니다. 거기서 "
        "`\\n`은 줄바꿈입니다. `none`은 빈 목록입니다.",
    ),
    "sampling.dynatemp_range": OptionText(
        short="동적 온도의 범위; 0은 끔",
        long="온도는 `temperature`에서 이 범위를 뺀 값과 더한 값 사이에 있습니다. "
        "모델이 확신하는 곳에서 낮고 그렇지 않은 곳에서 높습니다.",
    ),
    "sampling.dynatemp_exponent": OptionText(
        short="동적 온도의 지수",
        long="후보들의 엔트로피를 온도로 바꾸는 방법입니다.",
    ),
    "sampling.mirostat": OptionText(
        short="다른 샘플러 대신 쓰는 Mirostat 1 또는 2; 0은 끔",
        long="텍스트의 의외성을 `mirostat_tau` 가까이에 유지합니다.",
    ),
    "sampling.mirostat_tau": OptionText(
        short="Mirostat이 목표로 하는 의외성, 비트 단위",
        long="낮을수록 더 집중된 텍스트가 됩니다.",
    ),
    "sampling.mirostat_eta": OptionText(
        short="Mirostat의 학습률",
        long="스스로를 바로잡는 속도입니다.",
    ),
    "sampling.adaptive_target": OptionText(
        short="adaptive-p가 목표로 하는 확률; 0보다 작으면 끔",
        long="확률이 평균적으로 이 값에 가깝도록 토큰을 고릅니다. `samplers`에 "
        "`adaptive_p`가 있을 때 작동합니다.",
    ),
    "sampling.adaptive_decay": OptionText(
        short="adaptive-p의 기억",
        long="토큰마다 평균에서 그대로 남기는 비율입니다.",
    ),
    "sampling.stop": OptionText(
        short="답변을 끝내는 텍스트",
        long="플래그는 여러 번 쓸 수 있으며, 거기서 `\\n`은 줄바꿈입니다. `stop`을 "
        "스스로 정하지 않은 요청에 적용합니다.",
    ),
    "sampling.grammar": OptionText(
        short="답변이 따라야 하는 GBNF 문법",
        long="`grammar`, `json_schema`, `response_format` 가운데 아무것도 쓰지 않고 "
        "도구도 없는 요청에 적용합니다. 이때 채팅에는 사고 과정이 없습니다. 빈 "
        "`grammar`를 쓴 요청은 자유롭습니다.",
        default="없음",
    ),
    "sampling.grammar_file": OptionText(
        short="답변이 따라야 하는 GBNF 문법 파일",
        long="`--grammar`와 같습니다. TOML 파일에 쓴 이름은 그 파일이 있는 폴더를 "
        "기준으로 합니다.",
        default="없음",
    ),
    "sampling.json_schema": OptionText(
        short="답변이 따라야 하는 JSON 스키마",
        long="`{}`는 아무 JSON 객체입니다. `--grammar`와 같은 요청에 적용합니다. "
        "TOML에서는 테이블도 쓸 수 있습니다.",
        default="없음",
    ),
    "sampling.json_schema_file": OptionText(
        short="답변이 따라야 하는 JSON 스키마 파일",
        long="`--json-schema`와 같습니다. TOML 파일에 쓴 이름은 그 파일이 있는 "
        "폴더를 기준으로 합니다.",
        default="없음",
    ),
}
"""By key, in the order of the option table."""
