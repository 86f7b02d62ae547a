"use strict";
/* Unpacks plotly and the figures that stand beside their places, and draws them in the colours of the page. Reads
   nothing from anywhere else. */
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)");

  const BITS = 13;
  const DIGIT = new Uint8Array(127);
  for (let code = 33, digit = 0; code < 127; code++) if (!'"<\\'.includes(String.fromCharCode(code))) DIGIT[code] = digit++;

  /* The other end of packed.py: how many bytes, then 13 bits in two characters, most significant first. */
  const unpack = (text) => {
    const begin = text.indexOf(":") + 1;
    const bytes = new Uint8Array(parseInt(text, 10)); // what is beyond its end is padding and gets lost
    for (let i = begin, at = 0, held = 0, bits = 0; i < text.length; i += 2) {
      held = ((held << BITS) | (DIGIT[text.charCodeAt(i)] * 91 + DIGIT[text.charCodeAt(i + 1)])) & 0xfffff;
      for (bits += BITS; bits >= 8; bits -= 8) bytes[at++] = (held >> (bits - 8)) & 0xff;
    }
    return bytes;
  };
  const inflate = (element) =>
    new Response(new Blob([unpack(element.textContent)]).stream().pipeThrough(new DecompressionStream("deflate-raw"))).text();

  const inColours = (text) => {
    const style = getComputedStyle(root);
    return text.replace(/var\((--[\w-]+)\)/g, (_, name) => style.getPropertyValue(name).trim());
  };

  const BASE = `{"paper_bgcolor":"rgba(0,0,0,0)","plot_bgcolor":"rgba(0,0,0,0)","showlegend":false,"hovermode":"closest",
    "font":{"size":12,"color":"var(--ink)"},"bargap":0.35,
    "hoverlabel":{"bgcolor":"var(--faint)","bordercolor":"var(--line)","font":{"color":"var(--ink)","size":12},"align":"left"}}`;
  const AXIS = `{"gridcolor":"var(--grid)","linecolor":"var(--line)","tickcolor":"var(--line)","zeroline":false,"showline":true,
    "ticks":"outside","ticklen":4,"automargin":true,"tickfont":{"size":11.5,"color":"var(--quiet)"}}`;

  const layoutOf = (layout, width) => {
    const full = { ...JSON.parse(inColours(BASE)), ...layout, width };
    full.font.family = getComputedStyle(document.body).fontFamily;
    full.margin = { l: 58, r: 16, t: 8, b: 44, ...layout.margin };
    if (touch.matches) full.dragmode = false;
    for (const name of Object.keys(full)) {
      if (!/^[xy]axis\d*$/.test(name)) continue;
      const title = full[name].title || {};
      full[name] = { ...JSON.parse(inColours(AXIS)), ...full[name] };
      full[name].title = { standoff: 8, ...title, font: { size: 12, color: full[name].tickfont.color } };
    }
    return full;
  };

  const CONFIG = { displayModeBar: false, showTips: false, doubleClick: "reset" };

  const figureOf = new Map();
  const draw = (place, width) => {
    const told = JSON.parse(inColours(figureOf.get(place)));
    place.style.height = `${place.dataset.height}px`;
    return Plotly.react(place, told.data, layoutOf({ ...told.layout, height: Number(place.dataset.height) }, width), CONFIG);
  };

  const places = [...document.querySelectorAll(".plot")];
  const drawAll = (width) => places.map((place) => draw(place, width || place.clientWidth));

  const nav = document.querySelector("nav");
  for (const head of document.querySelectorAll("section > h2")) {
    const link = document.createElement("a");
    link.href = `#${head.parentElement.id}`;
    link.textContent = head.textContent;
    nav.append(link);
  }
  nav.hidden = false;

  const begin = async () => {
    for (const place of places) {
      place.dataset.height = place.style.height.replace("px", "");
      figureOf.set(place, await inflate(place.nextElementSibling));
    }
    const plotly = document.createElement("script");
    plotly.textContent = await inflate(document.getElementById("plotly"));
    document.head.append(plotly); // the policy knows its hash
    await Promise.all(drawAll());
    root.dataset.charts = String(places.length);
    dark.addEventListener("change", () => drawAll());
    let last = innerWidth;
    addEventListener("resize", () => {
      if (innerWidth !== last) drawAll();
      last = innerWidth;
    });
    addEventListener("beforeprint", () => {
      root.dataset.theme = "light";
      for (const fold of document.querySelectorAll("details")) fold.open = true;
      drawAll(660);
    });
    addEventListener("afterprint", () => {
      delete root.dataset.theme;
      drawAll();
    });
  };

  begin().catch((error) => {
    const trouble = document.getElementById("chart-trouble");
    trouble.textContent = `The charts could not be drawn (${error.message}). All numbers are in the tables.`;
    trouble.hidden = false;
  });
})();
