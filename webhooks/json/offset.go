package json

import "unsafe"

// Offset returns where in text the value stands that was read from it. False means
// that the value is empty or does not share text's memory.
func Offset(text []byte, v Value) (int, bool) {
	if len(v) == 0 || len(text) == 0 {
		return 0, false
	}
	start, at := uintptr(unsafe.Pointer(unsafe.SliceData(text))), uintptr(unsafe.Pointer(unsafe.SliceData(v))) // #nosec G103 -- addresses are compared, never followed
	if at < start || at+uintptr(len(v)) > start+uintptr(len(text)) {
		return 0, false
	}
	return int(at - start), true // #nosec G115 -- at most len(text)
}
