// Package dashboard serves a page on the user's own machine that shows the nodes, their disks and what occupies their extents. The
// Collector reads a Source in rounds while a page is open, with the user's rights; the server sends the page what changed. Nothing
// in the cluster serves the page, and the page changes nothing.
//
// # The stream
//
// GET /api/stream is a stream of server-sent events. Each event's data is one JSON document:
//
//	reset   Hello: the page forgets all nodes. The first event of each connection
//	nodes   []Node: new or changed nodes, each complete, at most batchNodes of them
//	gone    []string: names of nodes that are no longer listed
//	status  Status: the progress of reading, and what the user may not read
//
// A Node has its groups, their disks, and items: all that occupies extents or a part of a thin pool. A disk's ranges refer to items
// by their index in Node.Items, so that a range is three numbers. GET /api/events?namespace=N&claim=C&pod=P... returns []Event
// about a claim and the pods that use it.
//
// # Libraries
//
// A developer bundles the page from web with the exact versions in package-lock.json, and go build embeds the bundle. TestBundle
// checks that the bundle is up to date.
//
//	preact   renders the page from the model. The page renders a thousand nodes when one changes; code that updates single
//	         elements would be error-prone. Preact has 5 KB and no dependencies, creates text nodes from texts, and needs no
//	         inline code. React is ten times as large and has no advantage for this page.
//	esbuild  bundles and minifies the page; no code of it is in the bundle. It is one binary without dependencies, and its output
//	         is reproducible.
//
// The virtual lists, the search and the stream are short, and need no library.
//
// # Bounds
//
// Whoever is root on a node can write anything into the node's document. The plugin limits the document's bytes and values.
// bounds.go limits the entries and the texts of Node and its parts, and Node.Omitted counts the dropped entries. All texts reach
// the page as JSON strings, and the page shows them only as text nodes.
//
//	model             the data that the page gets
//	build, buildgroup one node's part of it, a pure function of the document and the objects
//	bounds            limits
//	collector, delta  reads the source, with back-off; finds what changed
//	server, guard     serves HTTP; refuses requests of other pages and programs
//	index             the objects of a node
//	simulated         a source with any number of nodes, for tests
//	web, assets       the page's source, and the bundle that go build embeds
package dashboard
