"use strict";
(() => {
  const root = document.documentElement, tip = document.getElementById("tip");
  root.classList.add("js");
  const map = document.getElementById("task-map");
  const hide = () => { tip.hidden = true; };
  const show = (event, text) => {
    tip.textContent = text;
    tip.hidden = false;
    const x = Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 6);
    const y = event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - 30 : event.clientY + 18;
    tip.style.left = Math.max(x, 4) + "px";
    tip.style.top = y + "px";
  };
  if (map) {
    const axes = JSON.parse(map.dataset.axes), ticks = axes.ticks.length;
    const letters = "dsarflcin", panelWidth = ticks * axes.step + axes.gap;
    const text = (row, place) => {
      const parts = [], tick = place % ticks, panel = Math.floor(place / ticks);
      if (axes.grid) {
        const named = [[axes.row, row.cells[0].textContent], [axes.panel, axes.panels[panel]], [axes.tick, axes.ticks[tick]]];
        parts.push(named.filter(pair => pair[0]).map(pair => pair[0] + "=" + pair[1]).join(", "));
      } else if (row.dataset.k) {
        parts.push(JSON.parse(row.dataset.k)[place]);
      } else {
        parts.push(row.cells[0].textContent);
      }
      if (row.dataset.s) {
        const outcome = letters.indexOf(row.dataset.s[place]);
        if (outcome < 0) return "";
        parts.push(axes.words[outcome]);
      } else if (row.dataset.m) {
        const told = row.dataset.m.split(" ")[place], counts = [...told.matchAll(/([a-z])([0-9]+)/g)];
        if (told === "-") return "";
        const words = pair => Number(pair[2]).toLocaleString("en") + " " + axes.words[letters.indexOf(pair[1])];
        parts.push(counts.map(words).join(", ") || "all done");
      } else {
        parts.push("all done");
      }
      return parts.join(": ");
    };
    map.addEventListener("pointermove", event => {
      const svg = event.target.closest("svg");
      if (!svg) return hide();
      const box = svg.getBoundingClientRect();
      const x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width, panel = Math.floor(x / panelWidth);
      const tick = Math.floor((x - panel * panelWidth) / axes.step);
      const inside = tick >= 0 && tick < ticks && panel < axes.panels.length;
      const said = inside ? text(svg.closest("tr"), panel * ticks + tick) : "";
      if (said) show(event, said); else hide();
    });
    map.addEventListener("pointerleave", hide);
    const only = document.getElementById("lacking-only");
    only.addEventListener("change", () => {
      for (const row of map.tBodies[0].rows)
        row.classList.toggle("hidden", only.checked && row.classList.contains("whole"));
    });
    for (const button of document.querySelectorAll("[data-outcome]"))
      button.addEventListener("click", () => {
        const picked = button.getAttribute("aria-pressed") !== "true";
        for (const other of document.querySelectorAll("[data-outcome]"))
          other.setAttribute("aria-pressed", String(picked && other === button));
        for (const path of map.querySelectorAll("tbody path"))
          path.classList.toggle("dimmed", picked && path.classList[0].slice(2) !== button.dataset.outcome);
      });
  }
  addEventListener("scroll", hide, {passive: true});
  for (const picker of document.querySelectorAll("select[data-picks]")) {
    const pick = () => {
      for (const item of document.querySelectorAll("[data-of]"))
        if (item.dataset.of === picker.dataset.picks) item.classList.toggle("hidden", item.dataset.is !== picker.value);
    };
    picker.addEventListener("change", pick);
    pick();
  }
})();
