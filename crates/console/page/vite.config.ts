import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

// Names without hashes, because the files are committed and embedded.
export default defineConfig({
  plugins: [svelte()],
  build: {
    target: 'es2022',
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    rolldownOptions: {
      output: { entryFileNames: 'console.js', assetFileNames: 'console[extname]', codeSplitting: false },
    },
  },
});
