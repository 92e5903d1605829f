// Package docrun runs the commands of the documentation in a lab, as a reader of the page would type them.
//
// It reads the fenced code blocks of a page:
//
//   - ```sh: commands. The blocks of a page run in one bash, one after the other, and each command must succeed.
//   - ```console: commands after "$ ", each with the output that it prints. Numbers may differ, and "…" stands for any text.
//   - ```yaml: an object of Kubernetes, which the API server must accept (a dry run).
//
// HTML comments on the lines before a block, which a reader of the page does not see, say how it differs:
//
//	<!-- not run: REASON -->   the block cannot run in the lab
//	<!-- with VALUE -->        the block needs a driver with that value of the chart, or a lost node: it runs for a Page with it, and no other block does
//	<!-- on NODE -->           the commands run on that node, as root
//	<!-- exit status N -->     the last command ends with this status
//	<!-- file NAME -->         the block is the content of that file in the working directory
//	<!-- setup: ... -->        the block needs an object or a state that the page takes for granted: commands that create it
package docrun
