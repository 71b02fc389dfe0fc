"""The pages for people, made with NiceGUI."""

from __future__ import annotations

from fastapi import FastAPI
from nicegui import ui

from ri2n_sdn.web.auth import Auth
from ri2n_sdn.web.feed import Feed
from ri2n_sdn.web.settings import WebSettings

__all__ = ["mount"]


def mount(app: FastAPI, feed: Feed, auth: Auth, settings: WebSettings) -> None:
    """Add the pages to an application, at all paths that are left."""

    @ui.page("/")
    def overview() -> None:
        ui.label("RI2N")
        status = ui.label()

        def show() -> None:
            controller = feed.state["controller"]
            status.text = feed.why or (
                f"{len(feed.state['hosts'])} hosts, strategy {controller.get('strategy')}"
            )

        show()
        ui.timer(1.0, show)

    ui.run_with(
        app,
        title="RI2N",
        dark=None,
        storage_secret=settings.secret(),
        session_middleware_kwargs={
            "session_cookie": "ri2n",
            "same_site": "strict",
            "https_only": settings.tls,
        },
        show_welcome_message=False,
    )
