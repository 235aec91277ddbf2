// Builds the console into dist/, which the thalweg binary embeds.

import { defineConfig } from "vite";

export default defineConfig({
  // Relative addresses: the pages work under any path.
  base: "./",
  build: {
    target: "es2022",
    // The players are the weight of the page; each is a file of its own and loads beside the rest.
    chunkSizeWarningLimit: 1500,
    reportCompressedSize: false,
  },
});
