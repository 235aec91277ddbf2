// Builds the console into dist/, which the thalweg binary embeds.

import { defineConfig } from "vite";

export default defineConfig({
  // Use relative URLs, so that the page works under any path.
  base: "./",
  build: {
    target: "es2022",
    // The player libraries make up most of the page's size. Each is a separate file, loaded in
    // parallel.
    chunkSizeWarningLimit: 1500,
    reportCompressedSize: false,
  },
});
