// Package move moves bound claims to another node: the part in the Kubernetes API. It is off by default (nodelvm serve --move). The data
// side (the interfaces of engine.go) holds, copies and hands over logical volumes; kube.Config.Moves brings the claims.
//
// Two agents act, the one on the node that has the volume (source) and the one on the node that gets it (target). There is no
// controller. What they must remember is in LVM tags: the state of the logical volume, and a Record. What they tell each other is in
// annotations of the PersistentVolume, which no tenant can write. On claims they read what the user wants (api.AnnotationMoveTo)
// and write what the user shall see (api.AnnotationMoveStatus); they never take a decision from the latter.
//
// One move, in the order of the steps:
//
//	source  Note          the Record, which can rebuild the PersistentVolume, is in the volume's tags
//	source  Annotate      PersistentVolume: the Record, the target's name, reclaim policy Retain
//	source  Delete, DropFinalizers, CreateParked, Poke
//	                      the same PersistentVolume with a second rule that no node satisfies: pods wait
//	source  Hold, Offer   no pod can start with the volume, and the target may copy it
//	target  Receive, Note, Answer
//	                      a copy, until it is complete and durable: the answer names this hold
//	source  HandOver      the switch: from this LVM commit on, the target's volume is the user's
//	source  Announce      PersistentVolume: handed over
//	target  Confirm, Answer, Finish
//	                      the target's tags say so, too; its volume is ready
//	source  Select, Delete, DropFinalizers
//	                      the claim's selected node; the parked PersistentVolume is gone
//	target  CreateTarget, Poke, RestoreClass, Restore, Forget
//	                      the PersistentVolume on the target, bound; its attributes class and reclaim policy
//	source  Remove        when the user says so, or a pod has run on the target for the grace period
//
// Until HandOver the user can cancel: Delete, DropFinalizers, CreateSource, Cancel, Restore, Poke, Forget; the target discards its copy.
// The claims of a pod are one move: each of them waits before CreateParked, Hold and HandOver for the others, one that is cancelled cancels
// all, and after the first HandOver none can be cancelled.
//
// The invariant, at every moment, for the two logical volumes of a claim:
//
//  1. At most one of them is ready, and pods start only with a ready one.
//  2. The user's volume is the target's if the source's is moved or removed, else the source's. It exists, and has every write that a
//     pod has flushed.
//  3. The target's becomes ready only after its tags say that the source's was handed over, and the source's is removed only after
//     the claim's PersistentVolume is the target's.
//
// Who can do what. A tenant can ask for a move of a claim in the tenant's namespace, to any node that the StorageClass allows. A tenant
// can cancel it before the switch and delete the former copy. Each node keeps at most one former copy of a claim, which no quota counts. Nothing else that a tenant can write is read. A node's token can
// move, and delete and create again, the PersistentVolumes of that node. It can answer moves to that node, and copy volumes while their
// claims ask for it. A record in another node's PersistentVolume counts only if it equals that PersistentVolume, and the claim agrees (incoming). The admission
// policies (deploy/chart, move.enabled) hold each token to that.
//
// Each step is one request or one call of the engine, repeats without harm, and is decided each time from what is there
// (decide.go, a pure function). So a crash, a conflict or a change by a user at any point needs no further code.
package move
