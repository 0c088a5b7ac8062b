const parsed = new Promise((resolve) => document.addEventListener("DOMContentLoaded", resolve));
// The first block stands before this script, so that its segments are drawn while the page loads.
const block = async (i) => {
  if (i > 0) await parsed;
  return fromBase64(document.getElementById(`block${i}`).textContent);
};
const about = JSON.parse(document.getElementById("about").textContent);
explorer(document.querySelector(".platt-explorer"), about, block);
