// Search without a server: browsers start no Worker for a page that is a file, so a hidden frame stands in for it.
"use strict";
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.ready = [];
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.appendChild(this.frame);
    this.receive = (event) => {
      if (event.source !== this.frame.contentWindow) return;
      event.stopImmediatePropagation();
      const copy = new MessageEvent("message", { data: event.data });
      this.dispatchEvent(copy);
      if (this.onmessage) this.onmessage(copy);
    };
    window.addEventListener("message", this.receive);
    const page = this.frame.contentWindow.document;
    page.open();
    page.write(`<html><body><script>
      postMessage = parent.postMessage.bind(parent);
      importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done) => {
        const script = document.createElement("script");
        script.src = url;
        script.onload = done;
        document.body.appendChild(script);
      })), Promise.resolve());
      addEventListener("error", (event) => parent.dispatchEvent(new ErrorEvent("error", { message: event.message })));
    </script><script src="${url}"></script></body></html>`);
    page.close();
    this.frame.contentWindow.addEventListener("load", () => {
      this.ready.forEach((data) => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
      this.ready = null;
    });
  }
  postMessage(data) {
    if (this.ready) this.ready.push(data);
    else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
  }
  terminate() {
    window.removeEventListener("message", this.receive);
    this.frame.remove();
  }
}
if (location.protocol === "file:") window.Worker = FrameWorker;
