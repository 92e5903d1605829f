// Package dashboard serves a page on the user's own machine that shows the nodes, their disks and what occupies their extents. A
// Source reads the cluster with the user's rights; the Collector reads it again and again while a page is open; the server sends
// the page what changed. Nothing in the cluster serves the page, and the page changes nothing.
//
// # The stream
//
// GET /api/stream is a stream of server-sent events. Each event's data is one JSON document:
//
//	reset   Hello: the page forgets all nodes. The first event, also after the page connected again
//	nodes   []Node: nodes that are new or changed, each whole, at most batchNodes of them
//	gone    []string: names of nodes that the source no longer lists
//	status  Status: how far the reading is, and what the user may not read
//
// A Node holds its groups, their disks, and its items: whatever occupies extents or a part of a thin pool. A disk's ranges refer to
// items by their index in Node.Items, so that a range is three numbers. GET /api/events?namespace=N&claim=C&pod=P... answers
// []Event about a claim and the pods that use it.
//
// # Libraries
//
// The page is bundled from web with the exact versions in package-lock.json, and go build embeds the result; TestBundle checks that the
// bundle is what the source gives.
//
//	preact   renders the page from the model. The page draws a thousand nodes again when one changes; by hand, each place that
//	         updates an element is a place for errors. It has 5 KB and no dependencies, creates text nodes from texts, and needs
//	         no inline code. React would be ten times as large and does nothing more for this page.
//	esbuild  bundles and minifies, when a developer changes the page; nothing of it is in the bundle. It is one binary without
//	         dependencies, and gives the same bytes for the same source.
//
// The virtual lists, the search and the stream are short enough to need no library.
//
// # Bounds
//
// A node's token lets its holder write anything into the node's document. The plugin limits the document's bytes and values. Node and its parts have limited numbers of entries and
// lengths of texts (bounds.go), and Node.Omitted counts what exceeds them. All texts reach the page as JSON strings, and the page
// shows them as text nodes alone.
//
//	model             what the page gets
//	build, buildgroup one node's part of it, a pure function of the document and the objects
//	bounds            limits
//	collector, delta  reading, with back-off; what changed
//	server, guard     HTTP; who may ask
//	index             the objects of a node
//	simulated         a source of as many nodes as a test wants
//	web, assets       the page's source, and the bundle that go build embeds
package dashboard
