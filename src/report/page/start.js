showHeader();
showSummary();
showFindings();
showKernels();
showOccupancy();
showCopies();
showLosses();
timeline.begin();
addEventListener("resize", () => {
  timeline.resize();
  drawCharts();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  timeline.restyle();
  drawCharts();
});
document.body.dataset.ready = "yes";
