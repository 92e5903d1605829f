// Bundles the page into a folder: node build.js [FOLDER]. The result depends on the sources and package-lock.json alone.
import { build } from "esbuild";
import { copyFile, mkdir } from "node:fs/promises";

const folder = process.argv[2] ?? "../assets";
await mkdir(folder, { recursive: true });
await build({
  entryPoints: { app: "src/main.jsx", style: "src/style.css" },
  outdir: folder,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  logLevel: "warning",
});
for (const file of ["index.html", "icon.svg"]) await copyFile(`src/${file}`, `${folder}/${file}`);
await copyFile("node_modules/preact/LICENSE", `${folder}/LICENSE.preact`);
