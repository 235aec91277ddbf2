// Builds the console into dist/, which the thalweg binary embeds.

import { defineConfig } from "vite";

export default defineConfig({
  // Relative addresses: the pages work under any path.
  base: "./",
  build: {
    target: "es2022",
    // The players make up most of the page's size: each is a separate file that loads in parallel.
    chunkSizeWarningLimit: 1500,
    reportCompressedSize: false,
  },
});
