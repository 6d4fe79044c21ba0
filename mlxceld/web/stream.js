// Requests with the key, and server-sent events read with fetch: an EventSource could
// not send a header, and a key in the address would land in logs.

let key = "";

// The key lives here and nowhere else: it is gone when the page is.
export function unlock(text) {
  key = text;
}

export function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (key) {
    headers.Authorization = `Bearer ${key}`;
  }
  return fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
}

// The data of each event of a reply, as it comes.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) {
        return;
      }
      text += value;
      const frames = text.split("\n\n");
      text = frames.pop();
      for (const frame of frames) {
        for (const line of frame.split("\n")) {
          if (line.startsWith("data: ")) {
            yield line.slice(6);
          }
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
