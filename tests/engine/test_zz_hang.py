from __future__ import annotations
import asyncio, sys, time
from mlxceld.engine.client import EngineClient
from tests.engine.test_client import LOAD, becomes, run

_DEAF = """
import os, sys, time
from mlxceld.engine.messages import ModelInfo, Ready, frame
from mlxceld.plan import Wish, make_plan
fd = int(sys.argv[2])
os.write(fd, frame([Ready(ModelInfo(8, 64), make_plan(Wish(ctx_size=64)))]))
os.close(fd)
time.sleep(60)
"""

def test_stopping_while_a_crashed_engine_is_slow_to_end_does_not_start_it_again() -> None:
    async def test() -> None:
        client = EngineClient(LOAD, [sys.executable, "-c", _DEAF])
        await client.start()
        await client.wait_ready()
        await asyncio.sleep(0.3)
        began = time.monotonic()
        await asyncio.wait_for(client.stop(), 5)
        assert time.monotonic() - began < 4
    run(test)
