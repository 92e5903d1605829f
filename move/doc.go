// Package move copies a volume from the node that has it to another node, so that a bound claim can leave its node. It decides nothing
// about Kubernetes' objects: its callers, the agents of the two nodes, hold the pods back, exchange the volume objects, and say which node may
// pull which volume.
//
// The flow, with the node that has the volume (source) and the node that gets it (target):
//
//  0. While pods use a thin volume, Source.TakeRound takes snapshots of it, its rounds. The target copies the first one, and of each further one what
//     changed, as in the steps 1 and 2; but the volume stays "ready", and the target's "receiving".
//  1. Source.Hold tags the volume "moving": no pod can start with it. Its Offer says what the volume is, and where and with which key the
//     source serves it. The caller publishes the offer where only the source's node can write.
//  2. Target.Receive creates a logical volume in the state "receiving" and pulls the content in the background. The caller calls it
//     again and again: each call returns the progress, and continues an interrupted copy.
//  3. When everything is written, flushed and equal to what the source read, the target's volume is "received".
//  4. Source.HandOver tags the source's volume "moved". From this commit on the target's volume is the authoritative one.
//  5. Target.Finish tags it "ready": pods can start with it.
//  6. Source.Remove deletes the source's volume, when its user no longer wants it.
//
// Trust. Each process has another TLS key, which no file has. The source's key is in the offer, so it is published where only the source's
// node can write; the target accepts that key alone, or a thief of an address could install forged data. The target sends a token that is
// bound to its node and that only an Authorizer accepts, and shows its own key, which it published before. The Authorizer compares both: a
// source that was sent the token cannot use it towards another source, as it lacks the key. So a stolen node's token pulls a volume only if
// the volume's move names that node, while it does. Encrypted volumes travel as they are on the disk. A peer costs bounded memory, and
// bounded time for each chunk; what it sent counts when the checksum of each chunk and that of the whole are right.
//
// What nothing here prevents: who reaches the port can take its connections (maxConnections), and so hold moves back, and a source can send
// other data than its volume has.
//
// Rounds. The target's tags name the round that it has completely (lvm.Volume.Base), from the moment at which all of it is verified and flushed. The
// next copy may be that of the changes only if the source offers them since exactly that round; otherwise everything is copied. A round never changes,
// and the source asks the thin pool itself, by thin_delta, which blocks are others than in the earlier round. What was discarded is zero at the target.
//
// Until step 4 the move can be cancelled, by Source.Cancel and Target.Discard. Each method can be repeated after a crash at any point.
package move
