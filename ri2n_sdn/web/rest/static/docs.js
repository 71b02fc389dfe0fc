// SPDX-License-Identifier: Apache-2.0
// Shows openapi.json in Swagger UI. Without its files, the page keeps its note.
"use strict";

if (window.SwaggerUIBundle) {
  window.ui = window.SwaggerUIBundle({
    url: "openapi.json",
    dom_id: "#swagger-ui",
    deepLinking: true,
    filter: true,
    tryItOutEnabled: true,
    validatorUrl: null, // it would send the document to a server elsewhere
    queryConfigEnabled: false, // a link must not make the page show another document
  });
}
