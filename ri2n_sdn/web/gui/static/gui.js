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

  // Without TLS, and not on this machine, browsers have no clipboard for pages but this old way.
  const copyOldWay = (text, beside) => {
    const area = document.createElement("textarea");
    area.value = text;
    beside.after(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    beside.focus();
    return done;
  };

  const copyText = async (button) => {
    const from = document.getElementById(button.dataset.copyFrom ?? "");
    const text = from ? (from.value ?? from.querySelector("input").value) : button.dataset.copy;
    let done = false;
    try {
      await navigator.clipboard.writeText(text);
      done = true;
    } catch {
      done = copyOldWay(text, button);
    }
    const word = (button.dataset.word ??= button.textContent);
    button.textContent = done ? "Copied" : "Select it, and copy by hand";
    setTimeout(() => (button.textContent = word), 2000);
  };

  // Parts that the server makes anew keep the focus, and what was unfolded. So does a button that
  // was disabled for a while. One that turns pages gives it to the other one on the last page.
  let focused = null;

  const keyOf = (part) =>
    [
      ...[part.id, part.getAttribute("href"), part.getAttribute("aria-label"), part.dataset.host],
      part.tagName === "SUMMARY" ? "" : part.textContent, // which may say how many there are
    ].join("\n");

  const around = (part) => {
    const found = [];
    for (let at = part.parentElement; at && at !== document.body; at = at.parentElement)
      found.push(at);
    return found;
  };

  document.addEventListener("focusin", ({ target }) => {
    focused = { part: target, key: keyOf(target), around: around(target) };
  });

  // Who clicks beside everything wants no focus. It is known a moment later that the part is there.
  document.addEventListener("focusout", ({ target }) => {
    setTimeout(() => {
      if (focused?.part === target && target.isConnected && !target.disabled
        && document.activeElement === document.body) focused = null;
    });
  });

  const keep = (changes) => {
    for (const node of changes.flatMap((change) => [...change.removedNodes])) {
      if (node.nodeType !== Node.ELEMENT_NODE) continue;
      for (const old of node.matches("details") ? [node] : node.querySelectorAll("details")) {
        const made = old.open && old.id && document.getElementById(old.id);
        if (made) made.open = true;
      }
    }
    if (changes.some((change) => change.addedNodes.length)) {
      tellAges();
      labelCells();
    }
    const active = document.activeElement;
    if (!focused || (active !== document.body && !active.disabled)) return;
    const { part, key } = focused;
    if (!part.isConnected) {
      const place = focused.around.find((each) => each.isConnected);
      const alike = [...(place?.querySelectorAll(part.tagName) ?? [])];
      alike.find((each) => keyOf(each) === key)?.focus({ preventScroll: true });
    } else if (!part.disabled) {
      part.focus({ preventScroll: true });
    } else if (part.closest(".pager")) {
      part.closest(".pager").querySelector("button:not([disabled])")?.focus();
    }
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
    const copy = event.target.closest?.("[data-copy], [data-copy-from]");
    if (copy) copyText(copy);
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

  // How long ago something was, in the words of units.ago_text. The server's clock counts: it said
  // what time it was when it began to answer.
  const ago = (seconds) => {
    for (const [length, unit] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]) {
      const whole = Math.floor(seconds / length);
      if (whole >= 1) return `${whole.toLocaleString("en")} ${unit} ago`;
    }
    return "now";
  };

  const tellAges = () => {
    const nowS = Number(document.getElementById("content")?.dataset.nowS);
    const answer = performance.getEntriesByType("navigation")[0];
    const aheadS = (performance.timeOrigin + answer.responseStart) / 1000 - nowS;
    for (const part of document.querySelectorAll("time.ago")) {
      const said = ago(Date.now() / 1000 - aheadS - Number(part.dataset.timeS));
      if (part.textContent !== said) part.textContent = said;
    }
  };

  // On a phone, each row of a table is a card (gui.css), so each cell says what it is.
  const phone = window.matchMedia("(max-width: 640px)");

  const labelCells = () => {
    if (!phone.matches) return;
    for (const table of document.querySelectorAll("table")) {
      const names = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
      for (const row of table.querySelectorAll("tbody tr"))
        [...row.children].forEach((cell, place) => {
          if (cell.dataset.label !== names[place]) cell.dataset.label = names[place] ?? "";
        });
    }
  };

  // What the server calls (drawing.py).
  window.ri2n = {
    paint(prefix, parts) {
      for (const [id, [look, note]] of Object.entries(parts)) {
        const part = document.getElementById(`${prefix}-${id}`);
        if (!part) continue;
        part.setAttribute("class", look);
        if (note === undefined) continue;
        if (part.tagName === "text") {
          part.textContent = note;
          continue;
        }
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

    // The login page. A token behind the "#" of the address leaves the address bar before it is
    // used.
    login(fromAddress) {
      const field = document.getElementById("token");
      const token = new URLSearchParams(location.hash.slice(1)).get("token");
      if (!field) return;
      if (!fromAddress || !token) {
        field.focus();
        return;
      }
      history.replaceState(history.state, "", location.pathname + location.search);
      field.value = token;
      field.form.submit();
    },

    // Moves the focus into a field, once what it is in has been unfolded.
    enter(id) {
      setTimeout(() => {
        const part = document.getElementById(id);
        const inner = part?.querySelector("input, textarea");
        (inner ?? part)?.focus();
      }, 100);
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

  document.addEventListener("DOMContentLoaded", () => {
    setTimeout(() => show(stored()));
    setInterval(tellAges, 1000);
    phone.addEventListener("change", labelCells);
    const watched = { childList: true, subtree: true, attributeFilter: ["disabled"] };
    new MutationObserver(keep).observe(document.body, watched);
  });
})();
