/* Search in a folder of files. Browsers start no worker for a page that was opened from disk (file://),
   so the search worker runs in a hidden frame with the same messages. On a web server this does nothing. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const base = new URL(url, location)
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.documentElement.append(frame)
      const inside = frame.contentWindow
      const load = source => new Promise((resolve, reject) => {
        const script = frame.contentDocument.createElement("script")
        script.src = new URL(source, base)
        script.onload = resolve
        script.onerror = () => reject(new Error(`cannot load ${source}`))
        frame.contentDocument.head.append(script)
      })
      inside.importScripts = (...sources) =>
        sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve())
      inside.postMessage = data => {
        const message = new MessageEvent("message", { data })
        this.dispatchEvent(message)
        if (this.onmessage) this.onmessage(message)
      }
      this.frame = frame
      this.ready = load(base)
    }
    postMessage(data) {
      const frame = this.frame.contentWindow
      this.ready.then(() => frame.dispatchEvent(new frame.MessageEvent("message", { data })))
    }
    terminate() {
      this.frame.remove()
    }
  }
}
