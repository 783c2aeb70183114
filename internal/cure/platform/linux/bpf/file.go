package bpf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"unbloat/internal/cure/classify"
)

// File returns the object with the constants written in, as tc(8) loads it, for processors of
// a byte order. seed is that of the hashes.
func (w Wanted) File(order binary.ByteOrder, seed uint32) ([]byte, error) {
	at, object, err := limitsIn(slices.Clone(object()), order)
	if err != nil {
		at, object, err = limitsIn(slices.Clone(foreign), order)
	}
	if err == nil && classify.PlacesFor(w.Policy.Limits.Flows) != classify.PlacesFor(flowsOfFile) {
		err = fmt.Errorf("tc(8) loads tables for %d flows, not for %d", flowsOfFile, w.Policy.Limits.Flows)
	}
	if err == nil {
		_, err = binary.Encode(object[at:], order, classify.ConstantsOf(w.Policy, w.setting(seed)))
	}
	if err != nil {
		return nil, fmt.Errorf("write the BPF object for tc(8): %w", err)
	}
	return object, nil
}

// flowsOfFile is for how many flows the object has room (state.h), and plans ask for.
const flowsOfFile = 8192

// IsFile reports whether a file is the object with the constants that w wants.
func (w Wanted) IsFile(text []byte) bool {
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		at, _, err := limitsIn(text, order)
		var c classify.Constants
		if err != nil {
			continue
		}
		if _, err := binary.Decode(text[at:], order, &c); err != nil {
			continue
		}
		want, err := w.File(order, c.Seed)
		return err == nil && bytes.Equal(text, want)
	}
	return false
}

// limitsIn returns where an object has its constants.
func limitsIn(object []byte, order binary.ByteOrder) (at int, same []byte, err error) {
	f, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		return 0, nil, err
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		return 0, nil, err
	}
	i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == "limits" })
	data := f.Section(".rodata")
	if f.ByteOrder != order || i < 0 || data == nil {
		return 0, nil, errors.New("this build has no object for processors of this byte order")
	}
	at = int(data.Offset + symbols[i].Value)
	if at+binary.Size(classify.Constants{}) > len(object) {
		return 0, nil, errors.New("it is cut off")
	}
	return at, object, nil
}
