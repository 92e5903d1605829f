// Package diagrams renders the Mermaid diagrams of the documentation with the real library, in a headless browser.
package diagrams
