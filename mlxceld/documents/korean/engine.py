"""The options of table `[engine]` in Korean; the package says how."""

from __future__ import annotations

from mlxceld.documents.language import OptionText

_CACHE_TYPES = {
    "auto": "모델이 계산에 쓰는 정밀도",
    "f16": "값 하나에 2바이트",
    "bf16": "값 하나에 2바이트",
    "f32": "값 하나에 4바이트",
    "q8_0": "값 하나에 8비트, 32개마다 스케일과 오프셋 하나씩",
    "q4_0": "값 하나에 4비트, 32개마다 스케일과 오프셋 하나씩",
}

TEXTS: dict[str, OptionText] = {
    "engine.mode": OptionText(
        short="컨텍스트 크기와 슬롯 수로 요청 하나의 컨텍스트를 정하는 방법",
        long="요청 하나가 쓸 수 있는 양이 슬롯 컨텍스트이고, 모든 요청이 함께 지닐 "
        "수 있는 양이 풀입니다. C는 `--ctx-size`, N은 `--parallel`입니다.\n\n"
        "`--llama-server-compat`은 `--mode llama-compat`을 달리 쓴 것입니다.",
        default="legacy",
        choices={
            "legacy": "모든 슬롯이 컨텍스트 C 전체를 받음; 메모리는 C x N으로 늘어남",
            "llama-compat": "슬롯들이 C를 나누거나 공유함; 메모리는 C로 일정함",
            "per-seq": (
                "모든 슬롯이 ctx_size_per_seq 토큰을 받음; 메모리는 N에 따라 늘어남"
            ),
        },
    ),
    "engine.ctx_size": OptionText(
        short="토큰 단위의 컨텍스트 크기 C; 0은 모델의 학습 길이",
        long="모드별 나눗셈 규칙입니다. legacy: 모든 슬롯이 C를 받고 풀은 C x "
        "N입니다. llama-compat: N을 주면 모든 슬롯이 floor(C / N)을 받고 풀은 "
        "C입니다. N을 정하지 않거나 auto이거나 kv_unified이면 요청 하나가 C까지 쓸 "
        "수 있고 모든 슬롯이 C 크기의 풀을 공유합니다. per-seq: C는 공유 "
        "풀(kv_unified)의 크기일 뿐이고 슬롯 컨텍스트는 ctx_size_per_seq입니다.\n\n"
        "정하지 않거나 0이면 모든 슬롯이 모델의 학습 길이를 받으며, 메모리가 "
        "허용하는 만큼 낮아집니다. 직접 준 C는 말없이 바뀌지 않습니다. 학습 길이보다 "
        "큰 슬롯 컨텍스트는 학습 길이로 제공하고 그렇게 보고합니다.",
        default="모델의 학습 길이",
    ),
    "engine.ctx_size_per_seq": OptionText(
        short="per-seq 모드에서 요청 하나의 컨텍스트, llama-compat에서는 상한",
        long="per-seq 모드에 필요합니다. 모든 슬롯이 이만큼의 토큰을 받습니다. "
        "llama-compat 모드에서는 슬롯 컨텍스트의 상한이고, `--ctx-size`가 없으면 "
        "풀의 크기를 정합니다. 풀은 이 토큰 수의 N배입니다. 0은 생략한 것과 같습니다.",
        default="정하지 않음",
    ),
    "engine.parallel": OptionText(
        short="슬롯 수 N: 동시에 실행하는 요청의 수",
        long="모드별 나눗셈 규칙입니다. legacy: 모든 슬롯이 `--ctx-size` C 전체를 받고 "
        "메모리는 C x N으로 늘어납니다. llama-compat: 모든 슬롯이 floor(C / N)을 받고 "
        "메모리는 C로 일정합니다. `--kv-unified`를 쓰면 요청 하나가 C까지 쓸 수 있고 "
        "모든 슬롯이 C를 공유합니다. per-seq: 모든 슬롯이 ctx_size_per_seq를 받고 "
        "메모리는 N에 따라 늘어납니다.\n\n"
        "-1은 auto, 곧 4개의 슬롯이며 llama-compat 모드에서는 C를 공유합니다. 정하지 "
        "않으면 llama-compat 모드에서는 auto이고 다른 모드에서는 슬롯 하나입니다. 0은 "
        "거부합니다. 나눈 결과가 슬롯마다 min_slot_ctx보다 작으면 시작할 때 "
        "거부합니다.",
        default="정하지 않음 (legacy와 per-seq: 슬롯 1개; llama-compat: auto)",
    ),
    "engine.kv_unified": OptionText(
        short="슬롯들이 하나의 풀을 공유할지 여부",
        long="켜면 다른 요청이 짧은 동안 요청 하나가 풀 전체를 쓸 수 있습니다. 끄면 "
        "슬롯 수가 auto일 때도 모든 슬롯이 자기 몫을 가집니다. legacy 모드에는 "
        "공유할 것이 없으므로 거부합니다.",
        default="off; llama-compat 모드에서 슬롯 수가 auto이면 on",
    ),
    "engine.min_slot_ctx": OptionText(
        short="나눗셈이 남겨도 되는 가장 작은 슬롯 컨텍스트",
        long="`--ctx-size`를 `--parallel`로 나눈 결과가 이보다 작으면, 숫자와 해결 "
        "방법을 보이고 시작을 거부합니다.",
    ),
    "engine.batch_size": OptionText(
        short="한 스텝에 읽는 프롬프트 토큰의 최대 수",
        long="긴 프롬프트는 이 크기의 청크로 나누어 읽고, 실행 중인 답변은 청크 사이에 "
        "계속됩니다. 그동안 청크는 더 작아집니다(`--token-gap`). 청크가 크면 "
        "프롬프트를 더 빨리 읽지만 작업 메모리가 더 필요합니다. 프롬프트의 끝에서 "
        "청크에 남는 자리는 다른 요청의 프롬프트로 채울 수 있습니다.",
        default="CPU에서는 256, GPU에서는 512",
    ),
    "engine.token_gap": OptionText(
        short="프롬프트를 읽는 동안 실행 중인 답변이 토큰을 기다려도 되는 시간",
        long="초 단위의 목표값입니다. 실행 중인 답변의 두 토큰 사이에는 디코드 스텝 "
        "하나와 프롬프트 청크 하나가 있습니다. 청크는 마지막 청크들을 읽은 속도에 "
        "따라, 이 시간에서 스텝이 남긴 만큼을 얻습니다. 값이 작으면 답변이 더 고르게 "
        "흐르고 프롬프트를 읽는 데 더 오래 걸립니다. 시간이 아무리 짧아도 청크는 "
        "64개 토큰, CUDA에서는 256개 토큰보다 작아지지 않습니다. 0은 제한을 두지 "
        "않으며, 청크는 항상 `--batch-size`의 크기입니다.",
        default="CPU에서는 0.25, GPU에서는 0.1",
    ),
    "engine.cache_prompt": OptionText(
        short="슬롯이 기억하는 이전 프롬프트를 다시 사용함",
        long="새 프롬프트와 슬롯의 토큰이 공유하는 가장 긴 앞부분은 다시 계산하지 "
        "않습니다. 요청에서 `cache_prompt`로 달리 정할 수 있습니다.",
    ),
    "engine.context_shift": OptionText(
        short="슬롯 컨텍스트가 차면 가장 오래된 텍스트를 버리고 계속함",
        long="끄면 답변은 슬롯 컨텍스트가 차는 곳에서 끝납니다. 켜면 처음 `n_keep` "
        "뒤의 토큰을 절반, 또는 요청의 `n_discard`만큼 버리고 답변을 계속하며, "
        "답변에는 `truncated`가 표시됩니다. llama-server는 지니고 있는 키를 새 "
        "위치로 옮기지만, 여기서는 남은 것을 다시 읽으므로 모델은 줄어든 텍스트를 "
        "정확히 그대로 봅니다. 이는 컨텍스트의 절반을 쓸 때마다 한 번, 그 길이의 "
        "프롬프트를 읽는 만큼 걸립니다. 너무 긴 프롬프트는 그래도 거부합니다. 아무 "
        "제한이 없는 답변은 모델의 학습 길이만큼의 토큰에서 끝납니다.",
    ),
    "engine.n_keep": OptionText(
        short="컨텍스트 이동이 남기는 앞부분의 토큰 수; -1은 프롬프트 전체",
        long="모델이 모든 텍스트를 시작하는 토큰은 어느 경우에나 남습니다. "
        "`n_keep`을 스스로 정하지 않은 요청에 적용합니다.",
    ),
    "engine.slot_prompt_similarity": OptionText(
        short="기억하는 슬롯을 받기 위해 프롬프트가 닮아야 하는 정도",
        long="유휴 슬롯이 이미 지닌 프롬프트의 비율입니다. 이보다 낮으면 가장 오래 "
        "쓰지 않은 유휴 슬롯을 받습니다. 0은 비교를 끕니다.",
    ),
    "engine.overflow": OptionText(
        short="공유 풀이 실행 중인 요청 모두에게 모자랄 때의 동작",
        long="먼저 유휴 슬롯이 기억하는 것을 오래 쓰지 않은 순서로 내놓습니다. 그래도 "
        "모자라면 다음과 같이 합니다. preempt는 가장 나중에 시작한 요청을 그때까지의 "
        "답변과 함께 대기열 맨 앞으로 돌려보냅니다. 클라이언트의 연결은 유지되고, 결국 "
        "받았을 답변을 그대로 받습니다. error는 llama-server처럼 실행 중인 모든 요청을 "
        "상태 500 또는 스트림의 오류 이벤트와 `Context size has been exceeded.`로 "
        "끝냅니다. 기다리던 요청은 계속됩니다.\n\n"
        "슬롯들이 풀을 공유하지 않으면 아무 차이가 없습니다.",
        choices={
            "preempt": "가장 나중에 시작한 요청이 물러났다가 이어서 계속함",
            "error": "실행 중인 모든 요청이 오류로 끝남",
        },
    ),
    "engine.queue_timeout": OptionText(
        short="요청이 슬롯을 기다릴 수 있는 시간(초); 0은 제한 없음",
        long="시작하지 못하고 더 오래 기다린 요청은 503과 `Retry-After` 헤더로 "
        "거부합니다. 이미 시작했다가 다른 요청 때문에 물러난 요청은 거부하지 "
        "않습니다.",
    ),
    "engine.device": OptionText(
        short="계산하는 장치",
        long="llama-server의 `none`도 받아들이며 cpu를 뜻합니다.",
        choices={
            "auto": "GPU가 있으면 GPU, 없으면 CPU",
            "cpu": "CPU",
            "gpu": "GPU (Metal 또는 CUDA)",
        },
    ),
    "engine.dequantize": OptionText(
        short="양자화된 가중치를 불러올 때 풀지 여부",
        long="CPU에서 양자화된 가중치와 16비트 가중치의 곱은 float32보다 몇 배나 "
        "느립니다. 풀면 메모리를 더 쓰는 대신 그만큼 빨라집니다.",
        choices={
            "auto": "CPU에서는 풀고 GPU에서는 풀지 않음",
            "on": "불러올 때 가중치를 보통의 부동소수점 수로 바꿈",
            "off": "가중치를 파일에 있는 그대로 둠",
        },
    ),
    "engine.cache_type_k": OptionText(
        short="키를 저장하는 형식",
        long="작은 형식은 더 많은 토큰을 담을 자리를 만들고 정확도를 조금 잃습니다. "
        "계획은 실제 바이트를 셉니다. 16비트 모델에서 q8_0은 9/16, q4_0은 5/16을 "
        "차지하는데, 스케일과 오프셋도 16비트이기 때문입니다. CPU에서 모델은 "
        "float32로 계산하며, 두 형식은 그것의 5/16과 3/16입니다.\n\n"
        "슬라이딩 윈도와 순환 상태는 텍스트에 따라 늘어나지 않으며 언제나 모델의 "
        "정밀도를 유지합니다. q8_0과 q4_0은 헤드 크기가 32의 배수여야 합니다.",
        choices=_CACHE_TYPES,
    ),
    "engine.cache_type_v": OptionText(
        short="값을 저장하는 형식",
        long="`--cache-type-k`와 같으며 값에 적용합니다. 둘은 서로 달라도 됩니다.",
        choices=_CACHE_TYPES,
    ),
    "engine.memory_limit": OptionText(
        short="가중치, 캐시, 한 스텝이 함께 쓸 수 있는 메모리",
        long="단위(K, M, G, T 또는 KiB, MiB, GiB, TiB, 모두 1024의 거듭제곱)를 붙일 "
        "수 있는 바이트 수, `75%`처럼 계산하는 장치의 메모리에 대한 비율, 또는 "
        "auto입니다. CPU와 Metal에서 그 메모리는 물리 메모리, 또는 컨테이너나 서비스 "
        "관리자가 허용한 만큼이며, auto는 그것의 `75%`이되 Metal에서는 Metal이 "
        "권하는 양을 넘지 않습니다. CUDA에서는 그래픽 카드의 메모리이며 auto는 "
        "그것의 `90%`입니다.",
    ),
    "engine.memory_check": OptionText(
        short="계획이 메모리 한도에 맞지 않으면 시작을 거부함",
        long="끄면 한도를 보지 않습니다. 시작을 거부하지도, 정하지 않은 컨텍스트 "
        "크기를 낮추지도 않습니다.",
    ),
    "engine.watchdog_timeout": OptionText(
        short="엔진이 멈춘 것으로 보는 침묵의 시간; 0은 끝없이 기다림",
        long="엔진은 한 스텝을 계산하는 중이 아니면 적어도 1초에 한 번 살아 있음을 "
        "알립니다. 이 시간 동안 조용한 엔진은 강제로 끝내고 다시 시작하며, 그 요청들은 "
        "오류로 끝납니다. 프롬프트는 이 시간의 4분의 1, 길어도 10초가 걸리도록 청크로 "
        "나누어 읽습니다. 이 값은 디코드 스텝 하나가 걸릴 수 있는 시간보다 길어야 "
        "합니다. 모델을 불러오는 시간은 재지 않습니다.",
    ),
    "engine.max_restarts": OptionText(
        short="비정상 종료된 엔진을 10분 안에 다시 시작하는 횟수",
        long="사이의 간격은 점점 길어집니다. 한 번 더 비정상 종료되면 데몬은 상태 "
        "70으로 끝나고 서비스 관리자가 결정합니다. 0이면 다시 시작하지 않습니다.",
    ),
    "engine.sleep_idle_seconds": OptionText(
        short="유휴 상태에서 모델을 내리기까지의 시간(초); -1과 0은 내리지 않음",
        long="엔진 프로세스를 끝내므로 그 메모리가 모두 비워집니다. 엔진이 필요한 다음 "
        "요청이 다시 시작시키고 모델을 불러올 때까지 기다립니다. 상태를 묻는 경로는 "
        "그렇지 않으며, 상태 확인, 속성, 슬롯, 지표, 모델 목록에는 전과 같이 "
        "응답합니다.",
    ),
    "engine.cache_ram": OptionText(
        short="슬롯을 다른 요청에 넘긴 프롬프트를 위한 메모리; 0은 끔",
        long="다른 프롬프트가 슬롯을 받거나 그 셀이 필요해지면 슬롯이 기억하던 것을 "
        "RAM에 두고, 프롬프트가 그것의 4분의 1 이상으로 시작하면 되돌립니다. "
        "32토큰보다 짧은 텍스트와 `cache_prompt`가 false인 요청의 텍스트는 두지 "
        "않습니다. 가장 오래 쓰지 않은 것부터 버리며, 상한은 어느 순간에나 "
        "지켜집니다.\n\n"
        "단위가 없는 수는 MiB입니다. K, M, G, T와 KiB, MiB, GiB, TiB를 쓸 수 "
        "있습니다(모두 1024의 거듭제곱). -1은 메모리 한도에서 가중치, 슬롯, 한 스텝을 "
        "뺀 나머지 전부이고, 그보다 많이 쓰는 일은 없습니다. 더 큰 수는 알림과 함께 "
        "낮아집니다. llama-server의 `--cache-idle-slots`처럼 유휴 슬롯을 여기로 "
        "비우지는 않습니다. 유휴 슬롯은 자리가 필요해질 때까지 기억을 유지합니다.",
        default="8192 MiB, 메모리 한도가 더 적게 남기면 그만큼",
    ),
    "engine.n_predict": OptionText(
        short="답변의 최대 토큰 수; -1은 슬롯 컨텍스트까지",
        long="스스로 제한을 정하지 않은 요청에 적용합니다.",
    ),
}
"""By key, in the order of the option table."""
