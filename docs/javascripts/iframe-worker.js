// The site's search runs in a worker, which browsers refuse to pages opened from files. There a hidden frame, which may
// load the same script, takes its place. mkdocs-material finds this file by its name and then loads none from elsewhere.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      const load = (from) => new Promise((loaded, failed) => {
        const script = inside.document.createElement("script");
        Object.assign(script, { src: from, onload: loaded, onerror: failed });
        inside.document.head.append(script);
      });
      const post = inside.postMessage.bind(inside);
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...urls) => urls.reduce((before, each) => before.then(() => load(each)), Promise.resolve());
      const ready = load(url);
      this.postMessage = (data) => ready.then(() => post(data, "*"));
      this.terminate = () => frame.remove();
    }
  };
}
