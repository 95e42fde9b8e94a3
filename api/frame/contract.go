package frame

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Contract returns a short hash of the slot layout and of the given descriptions (serialised
// protobuf file descriptors). Processes compare it when they meet; a difference means that they were built
// from different contracts and must not talk.
func Contract(descriptions ...[]byte) string {
	h := sha256.New()
	say := func(a ...any) { _, _ = fmt.Fprintln(h, a...) } // a hash takes everything
	say(magic, Page, headerSize, InfoLen, I420, NV12, Tainted, Keyframe, FullRange, BT709, BT2020, overread)
	say(regionMagic, regionSlots, regionHeaderLen, regionSlotBytes, regionLen)
	say(slotGeneration, slotNumber, slotCapture, slotReceive, slotFormat, slotWidth, slotHeight, slotFlags)
	say(InfoFormat, InfoWidth, InfoHeight, InfoGeneration, InfoSlot, InfoFlags, InfoNumber, InfoReserved)
	for _, d := range descriptions {
		say(len(d))
		_, _ = h.Write(d)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
