// What the GUI's pages need in the browser: the theme, and pictures that change in place.
"use strict";

(() => {
  const KEY = "ri2n-theme";

  const stored = () => {
    try {
      return localStorage.getItem(KEY) || "auto";
    } catch {
      return "auto"; // The browser keeps nothing for this site.
    }
  };

  const show = (theme) => {
    if (window.Quasar) Quasar.Dark.set(theme === "auto" ? "auto" : theme === "dark");
    const button = document.getElementById("theme");
    if (button) button.textContent = `Theme: ${theme}`;
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("#theme");
    if (button) {
      const themes = button.dataset.themes.split(" ");
      const theme = themes[(themes.indexOf(stored()) + 1) % themes.length];
      try {
        localStorage.setItem(KEY, theme);
      } catch {
        // Then the theme lasts as long as the page.
      }
      show(theme);
    }
    if (event.target.closest?.(".skip a")) {
      event.preventDefault();
      document.getElementById("content")?.focus();
      document.getElementById("content")?.scrollIntoView();
    }
  });

  const chosen = (target) => {
    const row = target.closest?.("[data-row]");
    if (row) return ["ri2n-row", Number(row.dataset.row)];
    const host = target.closest?.("[data-host]");
    return host ? ["ri2n-host", host.dataset.host] : null;
  };

  document.addEventListener("click", (event) => {
    const what = chosen(event.target);
    if (what) emitEvent(...what);
  });

  document.addEventListener("keydown", (event) => {
    const row = event.target.closest?.("[data-row]");
    if (row && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      emitEvent("ri2n-row", Number(row.dataset.row));
    }
  });

  // What the server calls (drawing.py).
  window.ri2n = {
    paint(prefix, parts) {
      for (const [id, [look, note]] of Object.entries(parts)) {
        const part = document.getElementById(`${prefix}-${id}`);
        if (!part) continue;
        part.setAttribute("class", look);
        if (note === undefined) continue;
        part.querySelector(".note").textContent = note;
        const name = part.dataset.name;
        part.setAttribute("aria-label", note ? `${name}: ${note}` : name);
      }
    },

    cells(parts) {
      for (const [id, [look, said]] of Object.entries(parts)) {
        const cell = document.getElementById(`cell-${id}`);
        if (!cell) continue;
        cell.className = look;
        cell.textContent = said;
      }
    },

    reveal(id) {
      // What was hidden is shown by then.
      setTimeout(() => {
        const part = document.getElementById(id);
        part?.scrollIntoView({ block: "nearest" });
        part?.focus({ preventScroll: true });
      }, 50);
    },
  };

  document.addEventListener("DOMContentLoaded", () => setTimeout(() => show(stored())));
})();
