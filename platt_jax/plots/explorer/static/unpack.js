// Reads what packing.py writes.

const ARRAYS = { u1: Uint8Array, u4: Uint32Array, f4: Float32Array };

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes;
}

async function inflated(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Columns by name, of which each layout has several of one length.
function unpacked(bytes, ...layouts) {
  const columns = {};
  let start = 0;
  for (const [layout, length] of layouts) {
    for (const [name, type] of layout) {
      const column = new ARRAYS[type](length);
      const width = column.BYTES_PER_ELEMENT;
      const into = new Uint8Array(column.buffer);
      for (let byte = 0; byte < width; byte++, start += length) {
        for (let i = 0, to = byte; i < length; i++, to += width) into[to] = bytes[start + i];
      }
      columns[name] = column;
    }
  }
  return columns;
}

function texts(bytes) {
  return JSON.parse(new TextDecoder().decode(bytes));
}
