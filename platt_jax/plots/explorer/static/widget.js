// What anywidget calls.

export default {
  async render({ model, el }) {
    el.innerHTML = MARKUP;
    const blocks = model.get("_blocks").map(({ buffer, byteOffset, byteLength }) => new Uint8Array(buffer, byteOffset, byteLength));
    const set = (name, value) => {
      model.set(name, value);
      model.save_changes();
    };
    const wanted = model.get("_selected");
    const tell = { select: (segment) => set("_selected", segment), region: (ends) => set("region", ends) };
    const view = await explorer(el.firstElementChild, JSON.parse(model.get("_about")), async (i) => blocks[i], tell);
    const select = () => view.select(model.get("_selected"));
    model.on("change:_selected", select);
    if (wanted >= 0) view.select(wanted);
    return () => {
      model.off("change:_selected", select);
      view.close();
    };
  },
};
