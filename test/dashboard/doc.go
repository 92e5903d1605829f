// Package dashboard tests the page of `kubectl nodelvm dashboard` in a headless browser. The browser is Debian's package
// chromium-headless-shell; playwright-core steers it and axe-core checks accessibility (npm packages, package-lock.json).
package dashboard
