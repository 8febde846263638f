// The buttons that copy a command. Everything else works without this file.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) {
    return;
  }
  await navigator.clipboard.writeText(button.dataset.copy);
  const before = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = before; }, 2000);
});

// What was opened stays open when a part of a page is loaded again.
const toggled = new Map();
document.addEventListener("toggle", (event) => {
  if (event.target.id) {
    toggled.set(event.target.id, event.target.open);
  }
}, true);
document.addEventListener("htmx:afterSwap", () => {
  for (const [id, open] of toggled) {
    const details = document.getElementById(id);
    if (details) {
      details.open = open;
    }
  }
});
