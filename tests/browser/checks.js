// What hinders people who cannot see well, use no mouse or have a small screen: a list of texts.
() => {
  const wrong = [];
  const shown = element => element.checkVisibility() && element.textContent.trim() !== "";
  const ids = [...document.querySelectorAll("[id]")].map(each => each.id);
  if (new Set(ids).size !== ids.length) wrong.push("an id twice");
  if (document.documentElement.lang !== "en") wrong.push("no language");
  if (document.querySelectorAll("h1").length !== 1) wrong.push("not one h1");
  let level = 0;
  for (const heading of document.querySelectorAll("h1, h2, h3")) {
    const its = Number(heading.tagName[1]);
    if (its > level + 1) wrong.push("a heading is skipped before " + heading.textContent);
    level = its;
  }
  for (const field of document.querySelectorAll("input:not([type=hidden]), select, progress"))
    if (!field.labels.length) wrong.push("no label: " + field.outerHTML);
  for (const each of document.querySelectorAll("a, button"))
    if (!(each.textContent.trim() || each.ariaLabel)) wrong.push("no text: " + each.outerHTML);
  for (const each of document.querySelectorAll("th"))
    if (!each.scope) wrong.push("no scope: " + each.outerHTML);
  for (const each of document.querySelectorAll("table"))
    if (!each.caption) wrong.push("no caption");
  for (const each of document.querySelectorAll("svg"))
    if (!each.parentElement.closest("svg") && !(each.ariaHidden || each.ariaLabel)) wrong.push("a picture without text");
  if (document.documentElement.scrollWidth > document.documentElement.clientWidth)
    wrong.push("wider than the window: " + document.documentElement.scrollWidth);
  const light = colour => {
    const [r, g, b] = colour.map(c => c / 255).map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const numbers = text => text.match(/[\d.]+/g).map(Number);
  const ground = element => {
    for (let at = element; at; at = at.parentElement) {
      const its = numbers(getComputedStyle(at).backgroundColor);
      if (its.length === 3) return its;
    }
  };
  for (const each of document.querySelectorAll("p, a, th, td, dt, dd, code, span, label, h1, h2, h3, li, button, summary")) {
    if (each.closest("svg, .hidden, .skip") || !shown(each)) continue;
    if (getComputedStyle(each).backgroundImage !== "none") continue;
    const [one, other] = [numbers(getComputedStyle(each).color).slice(0, 3), ground(each)].map(light);
    const contrast = (Math.max(one, other) + .05) / (Math.min(one, other) + .05);
    if (contrast < 4.5) wrong.push(contrast.toFixed(2) + ": " + each.outerHTML.slice(0, 120));
  }
  return wrong;
}
