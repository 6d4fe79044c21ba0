"""The options of table `[server]` in Korean; the package says how."""

from __future__ import annotations

from mlxceld.documents.language import OptionText

TEXTS: dict[str, OptionText] = {
    "server.host": OptionText(
        short="연결을 받을 주소",
        long="IPv4와 IPv6 주소, 이름, 또는 UNIX 소켓을 위한 `*.sock` 파일입니다. "
        "서비스 관리자가 소켓을 넘겨주는 곳(`LISTEN_FDS`)에서는 이 옵션과 `--port`가 "
        "쓰이지 않습니다.",
    ),
    "server.port": OptionText(
        short="TCP 포트; 0은 시스템이 고름",
        long="실제로 쓰는 포트는 로그의 `listening on` 줄에 있습니다.",
    ),
    "server.socket_mode": OptionText(
        short="UNIX 소켓을 쓸 수 있는 사용자, 8진수 모드",
        long="`--host`의 `*.sock` 파일에 적용합니다. `0600`은 소유자만, `0660`은 "
        "그룹도 쓸 수 있습니다. 첫 연결을 받기 전에 설정합니다. 서비스 관리자가 "
        "넘겨준 소켓은 받은 모드를 유지합니다.",
        default="umask가 남기는 모드",
    ),
    "server.api_key": OptionText(
        short="클라이언트가 제시해야 하는 키",
        long="키가 없으면 포트에 접근할 수 있는 누구나 쓸 수 있습니다. 플래그는 "
        "프로세스 목록에 보이므로 `--api-key-file`을 쓰는 편이 좋습니다.",
    ),
    "server.api_key_file": OptionText(
        short="한 줄에 하나씩 키를 적은 파일",
        long="빈 줄과 `#`으로 시작하는 줄은 건너뜁니다. `--api-key`에 더해집니다. "
        "소유자가 아닌 사용자가 읽거나 쓸 수 있는 파일은 거부합니다. TOML 파일에 쓴 "
        "이름은 그 파일이 있는 폴더를 기준으로 합니다.\n\n"
        "서비스 관리자의 자격 증명 `api-key`(`$CREDENTIALS_DIRECTORY/api-key`, "
        "systemd의 `LoadCredential=`)도 그런 파일이며 옵션이 필요 없습니다.",
        default="없음",
    ),
    "server.ssl_key_file": OptionText(
        short="HTTPS를 위한 개인 키 파일",
        long="암호가 없는 PEM 형식입니다. `--ssl-cert-file`도 필요합니다. 그러면 UNIX "
        "소켓을 포함한 모든 주소가 HTTPS를 씁니다. 설정을 다시 읽으면 두 파일도 다시 "
        "읽습니다.",
        default="없음: 일반 HTTP",
    ),
    "server.ssl_cert_file": OptionText(
        short="HTTPS를 위한 인증서 파일",
        long="PEM 형식입니다. 이 호스트의 인증서가 먼저 오고 그것을 뒷받침하는 "
        "인증서들이 뒤따릅니다. `--ssl-key-file`도 필요합니다.",
        default="없음: 일반 HTTP",
    ),
    "server.allowed_hosts": OptionText(
        short="클라이언트가 루프백 주소에 접근할 때 쓸 수 있는 추가 이름",
        long="웹 페이지는 자기 이름이 이 컴퓨터의 주소를 가리키게 한 다음, 이 "
        "컴퓨터에서만 연결을 받는 서버에 요청할 수 있습니다. 그래서 키가 없고 "
        "`--host`의 모든 주소가 루프백인 동안, 요청의 Host는 `localhost`나 루프백 "
        "주소, 또는 여기에 적은 호스트 가운데 하나여야 하며(포트는 무엇이든 됩니다), "
        "그렇지 않으면 403을 받습니다. `*`는 모든 이름을 허용합니다. 리버스 프록시가 "
        "넘겨주는 호스트를 여기에 적습니다.",
    ),
    "server.api_prefix": OptionText(
        short="모든 경로 앞에 붙는 경로",
        long="`/llm`이면 상태 확인은 `/llm/health`에 있습니다.",
    ),
    "server.ui": OptionText(
        short="`/`에서 모니터 페이지 제공",
        long="슬롯과 풀, 메모리, 엔진의 상태가 바뀌는 모습을 보여 주고, 여러 "
        "프롬프트를 나란히 보내 볼 수 있는 페이지입니다. 다른 사람의 프롬프트와 답변은 "
        "보이지 않고, 다른 곳에서 아무것도 불러오지 않습니다. 키가 설정되어 있으면 "
        "키를 묻고 메모리에만 둡니다.",
    ),
    "server.slots": OptionText(
        short="GET /slots 제공",
        long="슬롯마다 무엇을 하고 있는지 알려 줍니다. 프롬프트와 답변은 보이지 "
        "않습니다.",
    ),
    "server.slot_save_path": OptionText(
        short="저장한 슬롯을 두는 폴더; 슬롯 동작을 켬",
        long="`POST /slots/{id}?action=save`는 슬롯이 기억하는 것을 이 폴더의 파일에 "
        "쓰고, `restore`는 다시 읽고, `erase`는 잊습니다. 폴더는 미리 있어야 합니다. "
        "파일은 mlx-lm의 프롬프트 캐시와 같은 safetensors이고 소유자만 읽을 수 "
        "있으며, 프롬프트의 토큰이 들어 있습니다. TOML 파일에 쓴 이름은 그 파일이 "
        "있는 폴더를 기준으로 합니다.",
        default="없음; 슬롯 동작은 501로 응답",
    ),
    "server.props": OptionText(
        short="POST /props 제공",
        long="GET /props는 언제나 제공합니다.",
    ),
    "server.metrics": OptionText(
        short="Prometheus를 위한 GET /metrics 제공",
        long="llama-server의 이름과, 풀과 대기열에 관한 고유한 이름이 있습니다.",
    ),
    "server.cors_origins": OptionText(
        short="API를 부를 수 있는 웹 페이지",
        long="`*`는 요청한 출처를 그대로 답하고, `localhost`는 이 컴퓨터의 "
        "페이지에만 그렇게 합니다. 그 밖의 값은 llama-server처럼 적힌 그대로 "
        "보냅니다.",
    ),
    "server.queue_size": OptionText(
        short="슬롯을 기다릴 수 있는 요청의 수",
        long="대기열이 차면 다음 요청은 503과 `Retry-After` 헤더로 거부합니다.",
    ),
    "server.max_body_size": OptionText(
        short="가장 큰 요청 본문의 바이트 수",
        long="단위를 붙일 수 있습니다: `512K`, `64MiB`. 더 큰 요청은 크기를 알게 "
        "되는 즉시 413으로 거부합니다. 모든 요청의 큰 본문은 합쳐서 그 두 배까지, "
        "또는 512MiB가 더 크면 512MiB까지 쓸 수 있으며, 넘는 것은 503을 받습니다.",
    ),
    "server.timeout": OptionText(
        short="연결이 끊기기까지 클라이언트가 멈춰 있을 수 있는 시간(초); 0은 끊지 "
        "않음",
        long="클라이언트가 시작한 요청을 더 보내지 않는 동안, 그리고 기다리고 있는 "
        "답변을 받아 가지 않는 동안을 셉니다. 오래 걸리는 답변은 해당하지 않으며, "
        "멈춘 요청 때문에 다른 요청이 기다리지 않습니다.",
    ),
    "server.sse_ping_interval": OptionText(
        short="조용한 스트림에 보내는 주석 줄 사이의 시간(초); -1은 끔",
        long="잠시 멈춘 스트림을 프록시가 닫지 않게 합니다. 실패했을 때 알맞은 상태 "
        "코드를 보낼 수 있도록 첫 이벤트 전에는 아무것도 보내지 않습니다. 0도 "
        "끔입니다.",
    ),
    "server.drain_timeout": OptionText(
        short="데몬이 정지할 때 실행 중인 요청이 끝나도록 주는 시간(초)",
        long="그 뒤에도 실행 중인 것은 오류 이벤트로 끝냅니다. 서비스 관리자가 "
        "기다리는 시간보다 짧게 둡니다. launchd는 20초를 기다립니다.",
    ),
}
"""By key, in the order of the option table."""
