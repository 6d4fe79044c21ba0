"""Wait until the daemon of the demo is ready, then say how to talk to it.

Called with the daemon's command line, by the process that becomes the daemon: the
address is what the daemon itself makes of its flags and files.
"""

import http.client
import json
import os
import signal
import subprocess
import sys
import time


def address(command: list[str]) -> tuple[str, int] | None:
    """Host and port that `command` will listen on; None when it will not start."""
    asked = subprocess.run(
        [*command, "--print-config=json"], capture_output=True, text=True, check=False
    )
    if asked.returncode != 0:
        return None
    config = json.loads(asked.stdout)
    host, port = config["server.host"]["value"][0], config["server.port"]["value"]
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port


def healthy(host: str, port: int) -> bool:
    """Whether the model is loaded."""
    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def main() -> None:
    """Print the closing lines once, or nothing when the daemon ends before."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    daemon = os.getppid()
    where = address(sys.argv[1:])
    if where is None or where[1] == 0 or where[0].endswith(".sock"):
        return
    host, port = where
    if healthy(host, port):
        # Ours cannot be ready yet: the port is another program's, as ours will say.
        return
    while not healthy(host, port):
        if os.getppid() != daemon:
            return
        time.sleep(0.3)
    shown = f"[{host}]" if ":" in host else host
    print(
        "\nReady. In another terminal:\n\n"
        f"  curl http://{shown}:{port}/v1/chat/completions"
        " -H 'Content-Type: application/json' \\\n"
        """    -d '{"messages": [{"role": "user", "content": "Say hello"}]}'\n\n"""
        "Ctrl-C ends it.\n",
        flush=True,
    )


if __name__ == "__main__":
    main()
