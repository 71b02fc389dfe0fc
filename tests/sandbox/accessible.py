# SPDX-License-Identifier: Apache-2.0
"""What a page must have for people who use a keyboard, a screen reader or a phone."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

__all__ = ["keyboard_problems", "problems", "width_problems"]

MIN_CONTRAST, MIN_LARGE_CONTRAST = 4.5, 3.0
PHONE = {"width": 360, "height": 740}

# Runs in the browser, and returns a sentence for each thing that is wrong. A colour or an opacity
# that changes slowly has no contrast of its own: the page is looked at when it has come to its end.
_CHECKS = """
async ([minContrast, minLarge]) => {
  const slow = document.getAnimations().filter((each) => each instanceof CSSTransition);
  await Promise.allSettled(slow.map((each) => each.finished));
  const found = [];
  const all = (what) => [...document.querySelectorAll(what)];
  const visible = (e) => e.checkVisibility({ visibilityProperty: true, opacityProperty: true })
    && !e.closest('[aria-hidden="true"]');
  const shown = (e) => e.outerHTML.slice(0, 160);
  const referred = (e, name) => (e.getAttribute(name) || "").split(/\\s+/)
    .map((id) => document.getElementById(id)?.textContent ?? "").join(" ");
  const nameOf = (e) => [
    e.getAttribute("aria-label"), referred(e, "aria-labelledby"), e.getAttribute("alt"),
    ...[...(e.labels ?? [])].map((label) => label.textContent), e.getAttribute("title"),
    ["BUTTON", "A", "SUMMARY"].includes(e.tagName)
      || ["button", "checkbox", "switch", "tab"].includes(e.getAttribute("role"))
      ? [...e.childNodes].map((n) => n.nodeType === 3 ? n.textContent
          : n.getAttribute?.("aria-hidden") === "true" ? "" : n.textContent).join("") : "",
  ].map((text) => (text ?? "").trim()).find((text) => text) ?? "";

  if (!document.documentElement.lang) found.push("the page has no language");
  if (!document.title.trim()) found.push("the page has no title");
  const h1 = all("h1").filter(visible);
  if (h1.length !== 1) found.push(`there are ${h1.length} headings h1`);
  let rank = 0;
  for (const heading of all("h1, h2, h3, h4, h5, h6").filter(visible)) {
    const own = Number(heading.tagName[1]);
    if (own > rank + 1) found.push(`a heading leaves out a rank: ${shown(heading)}`);
    rank = own;
  }
  for (const landmark of ["header", "main"])
    if (all(landmark).length !== 1) found.push(`there is not one <${landmark}>`);
  for (const what of ["nav", "section", "[role=region]"])
    for (const e of all(what).filter(visible))
      if (!nameOf(e)) found.push(`a part has no name: ${shown(e)}`);

  const controls = "input:not([type=hidden]), select, textarea, button, a[href], summary,"
    + " [role=button], [role=tab], [role=combobox], [role=switch], [role=checkbox]";
  for (const e of all(controls).filter(visible))
    if (!nameOf(e)) found.push(`a control has no name: ${shown(e)}`);
  for (const e of all("img, svg, canvas, [role=img]").filter(visible))
    if (!nameOf(e) && e.getAttribute("role") !== "presentation" && !e.closest("svg svg")
      && !e.closest("[role=img][aria-label]"))
      found.push(`a picture has no name: ${shown(e)}`);
  for (const e of all("table").filter(visible))
    if (!e.querySelector("th")) found.push(`a table has no heads: ${shown(e)}`);
  const ids = all("[id]").map((e) => e.id);
  for (const id of new Set(ids.filter((id, place) => ids.indexOf(id) !== place)))
    found.push(`the id ${id} is there twice`);
  for (const e of all("[tabindex]"))
    if (e.tabIndex > 0) found.push(`a tabindex changes the order: ${shown(e)}`);

  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const colour = (text) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = ([r, g, b, a], [R, G, B]) => [
    r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a), 1];
  const behind = (e) => {
    const layers = [];
    for (let at = e; at; at = at.parentElement) {
      const rect = at.tagName === "g" && at.querySelector(":scope > rect");
      if (rect) layers.push(colour(getComputedStyle(rect).fill));
      layers.push(colour(getComputedStyle(at).backgroundColor));
      if (layers.at(-1)[3] === 1) break;
    }
    return layers.reduceRight((below, layer) => over(layer, below), [255, 255, 255, 1]);
  };
  const light = ([r, g, b]) => {
    const part = [r, g, b].map((v) => {
      v /= 255;
      return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
  };
  const texts = all("body *").filter((e) =>
    !["TITLE", "STYLE", "SCRIPT", "OPTION"].includes(e.tagName) && visible(e)
    && [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())
    && !e.closest("[disabled], .disabled"));
  for (const e of texts) {
    const style = getComputedStyle(e);
    const below = behind(e);
    const ink = over(colour(e.closest("svg") ? style.fill : style.color), below);
    const [low, high] = [light(below), light(ink)].sort((a, b) => a - b);
    const contrast = (high + 0.05) / (low + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (contrast < (large ? minLarge : minContrast))
      found.push(`contrast ${contrast.toFixed(2)}: ${shown(e)}`);
  }
  return found;
}
"""

MAX_WALKS = 5

_REACHABLE = """
  const what = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]";
  const found = [...document.querySelectorAll(what)].filter((e) =>
    e.tabIndex >= 0 && !e.disabled
    && e.checkVisibility({ visibilityProperty: true, opacityProperty: true }));
"""

_FOCUSABLE = f"""
() => {{
  document.querySelectorAll("[data-focusable]").forEach((e) => {{ delete e.dataset.focusable; }});
  {_REACHABLE}
  found.forEach((e, number) => {{ e.dataset.focusable = number; }});
  return found.map((e) => e.outerHTML.slice(0, 120));
}}
"""

# Whether all that can be reached now is what was marked, no more and no less.
_IS_AS_BEFORE = f"""
(marked) => {{
  {_REACHABLE}
  return found.length === marked && found.every((e) => e.dataset.focusable !== undefined);
}}
"""

_FOCUSED = """
() => {
  const e = document.activeElement;
  if (!e || e === document.body) return null;
  const style = getComputedStyle(e);
  const inner = e.querySelector?.("rect");
  const field = e.closest(".q-field");
  const seen = (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0)
    || style.boxShadow !== "none"
    || (inner && parseFloat(getComputedStyle(inner).strokeWidth) >= 3)
    || field?.classList.contains("q-field--focused");
  return [e.dataset.focusable ?? null, Boolean(seen), e.outerHTML.slice(0, 120)];
}
"""


def problems(page: Page) -> list[str]:
    """What is wrong with names, headings, landmarks, ids and contrasts of the page as it is now."""
    found: list[str] = page.evaluate(_CHECKS, [MIN_CONTRAST, MIN_LARGE_CONTRAST])
    return found


def keyboard_problems(page: Page) -> list[str]:
    """What the tabulator does not reach, and where it cannot be seen that it is there.

    A part that the page makes anew or adds meanwhile, as when it has just got its first answer, is
    another one. Then all is tried again; a page that never rests has its problems told.
    """
    for _ in range(MAX_WALKS):
        marked, found = _walk(page)
        if not found or page.evaluate(_IS_AS_BEFORE, marked):
            break
    return found


def _walk(page: Page) -> tuple[int, list[str]]:
    """Press the tabulator until all was reached; how much there was, and what is wrong."""
    wanted: list[str] = page.evaluate(_FOCUSABLE)
    page.evaluate("document.activeElement?.blur(); window.scrollTo(0, 0)")
    reached: set[int] = set()
    found = []
    for _ in range(len(wanted) + 5):
        page.keyboard.press("Tab")
        focused: Any = page.evaluate(_FOCUSED)
        if focused is None:
            continue
        number, seen, shown = focused
        if number is not None:
            if not seen and int(number) not in reached:
                found.append(f"the focus cannot be seen: {shown}")
            reached.add(int(number))
    missed = [shown for number, shown in enumerate(wanted) if number not in reached]
    return len(wanted), found + [f"the tabulator does not reach: {shown}" for shown in missed]


def width_problems(page: Page) -> list[str]:
    """Whether the page must be scrolled sideways on a phone."""
    before = page.viewport_size
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    try:
        width = page.evaluate("document.documentElement.scrollWidth")
        return [f"the page is {width} px wide on a phone"] if width > PHONE["width"] else []
    finally:
        if before is not None:
            page.set_viewport_size(before)
