"""What the Korean tables say beside the options; the package says how."""

from __future__ import annotations

CATEGORIES: dict[str, str] = {
    "model": "모델",
    "slots": "슬롯과 컨텍스트",
    "memory": "장치와 메모리",
    "engine": "엔진 프로세스",
    "sampling": "요청의 기본값",
    "server": "HTTP 서버",
    "logging": "로그",
}
"""Headings, by category: `slots`."""

WORDS: dict[str, str] = {
    "The numbers are for C = 8192, N = 4 and P = 4096": (
        "숫자는 C = 8192, N = 4, P = 4096일 때의 값입니다"
    ),
    "C": "C",
    "N": "N",
    "all together": "전체 합계",
    "change": "변경",
    "default": "기본값",
    "doubles": "2배",
    "environment": "환경 변수",
    "event": "이벤트",
    "exit status": "종료 상태",
    "here, `llama-compat`": "이 서버, `llama-compat`",
    "id": "id",
    "key": "키",
    "live": "실행 중",
    "llama-server": "llama-server",
    "meaning": "의미",
    "mode": "모드",
    "none": "없음",
    "one request may use": "요청 하나가 쓸 수 있는 양",
    "option": "옵션",
    "refused": "거부",
    "restart": "재시작",
    "shared": "공유",
    "signal": "시그널",
    "since version": "적용 버전",
    "stays": "그대로",
    "then": "변경 후",
    "today": "현재",
    "variable": "변수",
    "what changes": "달라지는 점",
    "what it does": "설명",
    "what it says": "내용",
    "what the daemon does": "데몬의 동작",
    "why": "이유",
    "with N doubled, memory": "N이 2배일 때 메모리",
    "llama-server has removed it": "llama-server에서 제거된 옵션",
    "it downloads a GGUF model for llama-server; name a model with `--hf-repo`": (
        "llama-server용 GGUF 모델을 내려받는 옵션; 모델은 `--hf-repo`로 지정"
    ),
    "it prints something about llama-server; there is nothing like it here": (
        "llama-server에 관한 정보를 출력하는 옵션; 여기에는 해당하는 것이 없음"
    ),
}
"""Headings of columns and words in cells, by the English ones."""

MODES: dict[str, str] = {
    "legacy": "`legacy` (기본값)",
    "llama-compat": "`llama-compat`",
    "llama-compat-shared": "`llama-compat`, `kv_unified = true`이거나 N을 생략할 때",
    "per-seq": "`per-seq`",
    "per-seq-shared": "`per-seq`, `kv_unified = true`일 때",
}
"""Labels of the rows of the table of modes, by `ModeRow.name`."""

EXITS: dict[str, str] = {
    "OK": "요청대로 정지했거나, 검사한 설정에 문제가 없음",
    "FAILURE": "모델을 불러오지 못했거나, 주소를 열지 못했거나, 정지 요청을 두 번 받음",
    "USAGE": "명령줄이 잘못됨",
    "SOFTWARE": "엔진이 반복해서 비정상 종료됨",
    "CONFIG": (
        "설정이 잘못되었거나, 쓸 수 있는 모델을 지정하지 않았거나, 메모리에 맞지 않음"
    ),
}
"""By the name of the status: `OK`."""

SIGNALS: dict[str, str] = {
    "SIGTERM": (
        "정지합니다. 새 요청은 503으로 거부하고, 실행 중인 요청에는 "
        "`server.drain_timeout`초의 시간을 주며, 종료 상태는 0입니다. 두 번째 시그널을 "
        "받으면 즉시 상태 1로 끝납니다."
    ),
    "SIGHUP": (
        "설정을 다시 읽습니다. 설정에 오류가 있으면 아무것도 바꾸지 않습니다. 실행 "
        "중에 바꿀 수 있는 옵션은 다음 요청부터 적용되고, 재시작이 필요한 옵션은 "
        "로그에 이름이 남습니다."
    ),
}
"""By the first signal: `SIGTERM`."""

EVENTS: dict[str, str] = {
    "starting": "버전과 읽은 설정 파일",
    "config_note": "덮어쓴 설정, 또는 여기서 의미가 없는 옵션",
    "config_warning": "설정에서 이상한 점",
    "plan": "계획의 한 줄: 슬롯, 컨텍스트, 풀, 메모리",
    "default_flip": "이 설정의 결과를 바꾸게 될 기본값 변경",
    "bound": "주소를 열었음; 모델을 불러올 때까지 503으로 응답",
    "loading": "준비되기 전에 엔진이 하고 있는 일",
    "loaded": "엔진이 다시 준비되었음, 또는 불러온 모델에 관한 참고 사항",
    "load_failed": "모델을 불러오지 못했음; 데몬이 끝남",
    "listening": "모델을 불러왔고 이 주소에서 서비스함",
    "started": "시작에 걸린 시간(초), 단계별",
    "engine_lost": "엔진이 비정상 종료되었거나 멈췄음; 실행 중이던 요청은 실패",
    "engine_fault": "개별 요청을 끝낸 엔진의 오류",
    "sleeping": "유휴 상태의 엔진을 끝내고 메모리를 반환했음",
    "full": "열린 파일이 너무 많아 연결을 닫았음; 1분에 한 번 기록",
    "request": "HTTP 요청 하나가 끝났음: 무엇이었고 어떻게 끝났는지",
    "request_failed": "프런트의 오류; 요청은 500을 받음",
    "reload": "다시 읽기에서 발견, 변경, 거부했거나 재시작으로 미룬 것",
    "draining": "정지 요청을 받고 실행 중인 것을 기다림",
    "drain_cut": "시간이 다 되어 끝낸 요청",
    "stopped": "데몬이 끝남; `status`가 종료 상태",
    "failed": "데몬이 스스로 끝나는 이유",
}
"""By the event: `listening`."""

FLIPS: dict[str, str] = {
    "MLX-F001": "기본값이 legacy에서 llama-compat으로 바뀜",
}
"""By the id: `MLX-F001`."""

VARIABLES: dict[str, str] = {
    "MLXCELD_CONFIG": "`--config`가 없을 때 읽을 설정 파일.",
    "CONFIGURATION_DIRECTORY": (
        "`mlxcel.toml`을 가장 먼저 찾는 폴더들, 콜론으로 구분; systemd가 설정함."
    ),
    "XDG_CONFIG_HOME": "사용자 설정 폴더, 기본값은 `~/.config`.",
    "HOMEBREW_PREFIX": "Homebrew의 위치; 그 아래 `etc/mlxcel/mlxcel.toml`을 읽음.",
    "CREDENTIALS_DIRECTORY": (
        "서비스 관리자의 자격 증명이 있는 폴더; 그 안의 `api-key`에서 키를 읽음."
    ),
    "LISTEN_FDS": (
        "서비스 관리자가 넘겨주는 소켓의 수, `LISTEN_PID`와 `LISTEN_FDNAMES`와 함께 "
        "씀; `--host`와 `--port`를 대신함."
    ),
    "NOTIFY_SOCKET": (
        "데몬의 준비, 다시 읽기, 정지를 서비스 관리자에게 알리는 곳; "
        "`WATCHDOG_USEC`이 있으면 살아 있음도 알림."
    ),
    "JOURNAL_STREAM": (
        "표준 오류를 가리키면 로그 줄 앞에 저널이 읽는 우선순위를 붙임."
    ),
    "HF_HOME": "Hugging Face 캐시의 위치.",
    "CACHE_DIRECTORY": (
        "서비스가 잃어도 되는 것을 두는 폴더들, 콜론으로 구분; systemd가 설정함. "
        "CUDA에서 MLX가 컴파일한 것을 첫 폴더의 `kernels`에 둠."
    ),
    "XDG_CACHE_HOME": (
        "사용자 캐시 폴더, 기본값은 `~/.cache`; `CACHE_DIRECTORY`가 없으면 CUDA에서 "
        "MLX가 컴파일한 것을 그 아래 `mlxcel/kernels`에 둠."
    ),
    "MLX_PTX_CACHE_DIR": "그 둘 대신 CUDA에서 MLX가 컴파일한 것을 두는 폴더.",
}
"""Variables that belong to no option, by name."""
