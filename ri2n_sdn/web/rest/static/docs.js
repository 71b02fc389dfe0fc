"use strict";

// Renders openapi.json. Everything from the document is put in as text, never as markup.

function make(name, properties, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key in element) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Plain text with `code`, **bold** and lists, as descriptions have it.
function prose(text) {
  const box = make("div");
  for (const block of (text || "").trim().split(/\n\s*\n/)) {
    const lines = block.split("\n");
    if (lines.every((line) => /^(\* | {2})/.test(line))) {
      const items = block.split(/^\* /m).filter(Boolean);
      box.append(make("ul", {}, ...items.map((item) => inline(make("li"), item))));
    } else {
      box.append(inline(make("p"), block));
    }
  }
  return box;
}

function inline(element, text) {
  for (const part of text.replace(/\s+/g, " ").split(/(`[^`]*`|\*\*[^*]*\*\*)/)) {
    if (part.startsWith("`")) element.append(make("code", {}, part.slice(1, -1)));
    else if (part.startsWith("**")) element.append(make("strong", {}, part.slice(2, -2)));
    else element.append(part);
  }
  return element;
}

function nameOf(reference) {
  return reference.split("/").pop();
}

function typeOf(schema) {
  const box = make("span");
  if (!schema) return box;
  if (schema.$ref) {
    const name = nameOf(schema.$ref);
    box.append(make("a", { href: `#model-${name}` }, name));
  } else if (schema.anyOf || schema.oneOf) {
    (schema.anyOf || schema.oneOf).forEach((each, place) => {
      if (place) box.append(" or ");
      box.append(typeOf(each));
    });
  } else if (schema.enum || "const" in schema) {
    box.append((schema.enum || [schema.const]).map((each) => JSON.stringify(each)).join(", "));
  } else if (schema.type === "array") {
    box.append("list of ", schema.items ? typeOf(schema.items) : "anything");
  } else if (schema.type === "object" && schema.additionalProperties) {
    box.append("map to ", typeOf(schema.additionalProperties));
  } else {
    box.append(schema.type || "anything");
  }
  const bounds = [];
  if ("minimum" in schema) bounds.push(`≥ ${schema.minimum}`);
  if ("maximum" in schema) bounds.push(`≤ ${schema.maximum}`);
  if ("maxLength" in schema) bounds.push(`at most ${schema.maxLength} characters`);
  if (schema.default !== undefined && schema.default !== null) {
    bounds.push(`default ${JSON.stringify(schema.default)}`);
  }
  if (bounds.length) box.append(` (${bounds.join(", ")})`);
  return box;
}

function table(heads, rows) {
  const head = make("tr", {}, ...heads.map((each) => make("th", { scope: "col" }, each)));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
}

function row(...cells) {
  return make("tr", {}, ...cells.map((cell) => make("td", {}, cell)));
}

function fields(schema) {
  const needed = new Set(schema.required || []);
  return table(
    ["key", "type", "meaning"],
    Object.entries(schema.properties || {}).map(([key, each]) =>
      row(
        make("code", {}, needed.has(key) ? key : `${key}?`),
        typeOf(each),
        inline(make("span"), each.description || ""),
      ),
    ),
  );
}

let schemas = {};

// The same request for a shell. The token itself is not shown.
function curl(method, url, headers, body) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const parts = ["curl", ...(method === "get" ? [] : ["-X", method.toUpperCase()])];
  for (const [name, value] of Object.entries(headers)) {
    if (name === "Authorization") parts.push("-H", '"Authorization: Bearer $TOKEN"');
    else if (name !== "Content-Type") parts.push("-H", quoted(`${name}: ${value}`));
  }
  if (body !== undefined) parts.push("--json", quoted(body.replace(/\s*\n\s*/g, " ")));
  return [...parts, quoted(new URL(url, location.href).href)].join(" ");
}

function tryOut(base, path, method, operation) {
  const box = make("form", {});
  const inputs = [];
  for (const each of operation.parameters || []) {
    const id = `${operation.operationId}-${each.name}`;
    const input = make("input", { id, type: "text", autocomplete: "off" });
    box.append(make("label", { htmlFor: id }, `${each.name}${each.required ? "" : " (optional)"}`));
    box.append(input);
    inputs.push([each, input]);
  }
  let body = null;
  if (operation.requestBody) {
    const id = `${operation.operationId}-body`;
    const name = nameOf(operation.requestBody.content["application/json"].schema.$ref || "");
    const example = (schemas[name]?.examples || [{}])[0];
    body = make("textarea", { id, value: JSON.stringify(example, null, 2) });
    box.append(make("label", { htmlFor: id }, "body (JSON)"), body);
  }
  const output = make("pre", { hidden: true, tabIndex: 0 });
  output.setAttribute("aria-live", "polite");
  box.append(make("p", {}, make("button", { type: "submit" }, `Send ${method.toUpperCase()}`)));
  box.append(output);
  box.addEventListener("submit", async (event) => {
    event.preventDefault();
    let url = base + path;
    const query = new URLSearchParams();
    const headers = {};
    for (const [each, input] of inputs) {
      if (each.in === "path") {
        url = url.replace(`{${each.name}}`, encodeURIComponent(input.value));
      } else if (input.value !== "") {
        if (each.in === "query") query.set(each.name, input.value);
        else headers[each.name] = input.value;
      }
    }
    if (query.size) url += `?${query}`;
    const token = document.getElementById("token").value.trim();
    if (token) headers.Authorization = `Bearer ${token}`;
    if (body) headers["Content-Type"] = "application/json";
    output.hidden = false;
    const command = curl(method, url, headers, body?.value);
    output.textContent = `${command}\n\n...`;
    try {
      const answer = await fetch(url, {
        method: method.toUpperCase(),
        headers,
        body: body ? body.value : undefined,
        credentials: "omit",
      });
      let text = await answer.text();
      try {
        text = JSON.stringify(JSON.parse(text), null, 2);
      } catch {
        // It is no JSON, so it is shown as it is.
      }
      const tag = answer.headers.get("etag");
      output.textContent =
        `${command}\n\n${answer.status} ${answer.statusText}\n` +
        `${tag ? `ETag: ${tag}\n` : ""}\n${text}`;
    } catch (error) {
      output.textContent = `${command}\n\nno answer: ${error.message}`;
    }
  });
  return make("details", {}, make("summary", {}, "Try it out"), make("div", {}, box));
}

function answers(operation) {
  return table(
    ["status", "answer", "meaning"],
    Object.entries(operation.responses).map(([status, each]) => {
      const kinds = Object.entries(each.content || {});
      const what = make("span");
      for (const [kind, { schema }] of kinds) {
        what.append(typeOf(schema), kind === "application/json" ? "" : ` (${kind})`);
      }
      return row(make("code", {}, status), what, inline(make("span"), each.description || ""));
    }),
  );
}

function operationOf(base, path, method, operation) {
  const box = make("div", {}, prose(operation.description));
  if ((operation.parameters || []).length) {
    box.append(
      make("h4", {}, "Parameters"),
      table(
        ["name", "in", "type", "meaning"],
        operation.parameters.map((each) =>
          row(
            make("code", {}, each.required ? each.name : `${each.name}?`),
            each.in,
            typeOf(each.schema),
            inline(make("span"), each.description || ""),
          ),
        ),
      ),
    );
  }
  if (operation.requestBody) {
    const { schema } = operation.requestBody.content["application/json"];
    box.append(make("h4", {}, "Body"), typeOf(schema));
  }
  box.append(make("h4", {}, "Answers"), answers(operation));
  if (!path.endsWith("stream")) box.append(tryOut(base, path, method, operation));
  const details = make(
    "details",
    { id: operation.operationId },
    make(
      "summary",
      {},
      make("span", { className: `method ${method}` }, method.toUpperCase()),
      make("span", { className: "path" }, path),
      " ",
      make("span", { className: "summary" }, (operation.description || "").split(/\.\s/)[0]),
    ),
    box,
  );
  details.dataset.text =
    `${method} ${path} ${operation.operationId} ${operation.description}`.toLowerCase();
  return details;
}

function show(made) {
  const base = made.servers[0].url;
  schemas = made.components.schemas;
  document.getElementById("version").textContent = made.info.version;
  document.getElementById("about").append(prose(made.info.description));
  const contents = document.getElementById("contents");
  const operations = document.getElementById("operations");
  for (const tag of made.tags) {
    const list = make("ul");
    const section = make("section", {}, make("h2", {}, tag.name), prose(tag.description));
    for (const [path, methods] of Object.entries(made.paths)) {
      for (const [method, operation] of Object.entries(methods)) {
        if ((operation.tags || [])[0] !== tag.name) continue;
        section.append(operationOf(base, path, method, operation));
        const link = make("a", { href: `#${operation.operationId}` });
        link.textContent = `${method.toUpperCase()} ${path}`;
        list.append(make("li", {}, link));
      }
    }
    contents.append(make("h3", {}, tag.name), list);
    operations.append(section);
  }
  const models = document.getElementById("models");
  models.append(make("h2", {}, "Models"));
  for (const [name, schema] of Object.entries(made.components.schemas)) {
    models.append(
      make(
        "details",
        { id: `model-${name}` },
        make("summary", {}, make("span", { className: "path" }, name)),
        make("div", {}, prose(schema.description), fields(schema)),
      ),
    );
  }
}

function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target instanceof HTMLDetailsElement) {
    target.open = true;
    target.scrollIntoView();
  }
}

function find() {
  const words = document.getElementById("find").value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const section of document.querySelectorAll("#operations > section")) {
    let some = false;
    for (const each of section.querySelectorAll(":scope > details")) {
      each.hidden = !words.every((word) => each.dataset.text.includes(word));
      some = some || !each.hidden;
    }
    section.hidden = !some;
  }
}

async function start() {
  const note = document.getElementById("note");
  try {
    const answer = await fetch("openapi.json", { credentials: "omit" });
    if (!answer.ok) throw new Error(`the answer is ${answer.status}`);
    show(await answer.json());
    note.remove();
  } catch (error) {
    note.textContent = `The document cannot be shown: ${error.message}. Reload the page.`;
    return;
  }
  document.getElementById("find").addEventListener("input", find);
  addEventListener("hashchange", openTarget);
  openTarget();
}

start();
