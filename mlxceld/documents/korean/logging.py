"""The options of table `[logging]` in Korean; the package says how."""

from __future__ import annotations

from mlxceld.documents.language import OptionText

TEXTS: dict[str, OptionText] = {
    "logging.level": OptionText(
        short="로그의 양",
        long="llama-server의 상세 수준 숫자도 받아들입니다. 0과 1은 error, 2는 "
        "warning, 3은 info, 4 이상은 debug입니다. 프롬프트와 답변은 절대 기록하지 "
        "않습니다.",
        choices={
            "debug": "상태만 묻는 요청마다 한 줄도 기록",
            "info": "시작, 정지, 엔진이 하는 일, 그리고 요청",
            "warning": "누군가 살펴봐야 하는 것",
            "error": "실패만",
        },
    ),
    "logging.format": OptionText(
        short="로그 줄의 형식",
        long="로그 줄은 표준 오류로 나갑니다. 로그 파일에는 console을 요청하지 않는 "
        "한 JSON을 씁니다.",
        choices={
            "auto": "터미널에서는 console, 그 밖에는 json",
            "console": "사람이 읽는 줄",
            "json": "한 줄에 JSON 객체 하나",
        },
    ),
    "logging.file": OptionText(
        short="로그 줄을 덧붙일 파일",
        long="표준 오류에도 함께 씁니다. TOML 파일에 쓴 이름은 그 파일이 있는 폴더를 "
        "기준으로 합니다.",
        default="없음",
    ),
}
"""By key, in the order of the option table."""
