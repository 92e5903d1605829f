package move

// action is one request to the API server, or one call of the engine.
type action string

const (
	wait action = "wait" // nothing to do now

	note    action = "note the record"
	forget  action = "remove the record"
	confirm action = "note that the volume was handed over"

	annotate       action = "annotate the PersistentVolume"
	deleteVolume   action = "delete the PersistentVolume"
	dropFinalizers action = "remove the PersistentVolume's finalizers"
	createParked   action = "create the parked PersistentVolume"
	createSource   action = "create the source's PersistentVolume"
	createTarget   action = "create the target's PersistentVolume"
	publishOffer   action = "publish the offer"
	announce       action = "announce that the volume is handed over"
	answer         action = "answer the offer"
	restore        action = "restore the reclaim policy"

	poke         action = "touch the claim"
	selectNode   action = "select the target for the claim"
	restoreClass action = "restore the claim's attributes class"

	takeRound  action = "take a snapshot"
	dropFormer action = "remove the earlier snapshots"
	dropRounds action = "remove the snapshots"

	hold     action = "hold the volume"
	cancel   action = "cancel the hold"
	handOver action = "hand the volume over"
	remove   action = "remove the former copy"
	receive  action = "receive the volume"
	finish   action = "finish the copy"
	discard  action = "discard the copy"
)

// step is what an agent does next for a claim.
type step struct {
	do    action
	why   string // Of wait: a sentence for the claim's user.
	warn  bool   // Of wait: a user has to do something.
	phase string // For the status.
	of    string // The copy that the step waits for; another one makes the agents read more often.
	ready bool   // Of wait: only the end of a pod is missing, and should not wait for the agent.
}

func waiting(phase, why string) step { return step{do: wait, phase: phase, why: why} }

func blocked(phase, why string) step { return step{do: wait, phase: phase, why: why, warn: true} }
