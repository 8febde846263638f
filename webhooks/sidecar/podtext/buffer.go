package podtext

// Buffer is the memory that reading a pod needs. It can be used again after Clear.
type Buffer struct {
	Pod    Pod
	Reader Reader
}

// maxKeptElements bounds the memory that a Buffer keeps. A pod of 60 KB has 5 to 40
// containers and volumes.
const maxKeptElements = 128

// Clear removes every reference to the pod. It keeps the memory of the elements, but
// not that of a large pod's.
func (b *Buffer) Clear() {
	elements := b.Pod.Elements
	clear(elements)
	if cap(elements) > maxKeptElements {
		elements = nil
	}
	*b = Buffer{}
	b.Pod.Elements = elements[:0]
}
