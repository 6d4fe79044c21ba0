// Bars and plots. Texts go into the page as text, never as HTML.

export function byId(id) {
  return document.getElementById(id);
}

// Writes a text only where it changes, so that screen readers hear what is new.
export function write(element, text) {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

// Makes a list have these texts, one an item.
export function list(element, texts) {
  while (element.children.length > texts.length) {
    element.lastElementChild.remove();
  }
  while (element.children.length < texts.length) {
    element.append(document.createElement("li"));
  }
  texts.forEach((text, index) => write(element.children[index], text));
}

// Draws a bar: pairs of class and size, of a whole. Styles are set one by one, which
// the page's policy allows; attributes with styles it does not.
export function bar(element, parts, whole) {
  while (element.children.length < parts.length) {
    element.append(document.createElement("div"));
  }
  parts.forEach(([name, size], index) => {
    const part = element.children[index];
    part.className = `part ${name}`;
    part.style.width = `${whole > 0 ? Math.min(100, (100 * size) / whole) : 0}%`;
  });
}

const SPAN = 60000;
const [WIDTH, HEIGHT] = [240, 48];

// A line over the last minute.
export class Plot {
  constructor(svg) {
    svg.setAttribute("preserveAspectRatio", "none");
    this.line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    svg.append(this.line);
    this.points = [];
    this.most = 0;
  }

  add(ms, value) {
    this.points.push([ms, value]);
    while (this.points[0][0] < ms - SPAN) {
      this.points.shift();
    }
    this.most = Math.max(...this.points.map((point) => point[1]));
    const most = this.most || 1;
    const places = this.points.map(([at, height]) => {
      const x = WIDTH - ((ms - at) / SPAN) * WIDTH;
      const y = HEIGHT - 2 - (height / most) * (HEIGHT - 4);
      return `${x.toFixed(1)},${y.toFixed(1)}`;
    });
    this.line.setAttribute("points", places.join(" "));
  }
}
