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
