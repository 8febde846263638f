package manifest

import (
	"bytes"
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// Expansion bounds what YAML documents say once each alias (*name) is a copy of what it stands for: a file of 100 kB can stand for
// gigabytes.
type Expansion struct{ left, most int }

// ErrExpansion is about documents that exceed an Expansion.
var ErrExpansion = errors.New("when YAML aliases are expanded")

// NewExpansion returns what the documents of a text may stand for: ten times its length, and what no API server accepts in one object.
func NewExpansion(length int) *Expansion {
	const (
		most  = 3 << 20
		times = 10
	)
	return &Expansion{left: most + times*length, most: most + times*length}
}

// Take takes a document off the bound, before it is decoded. An error means that they exceed it.
func (x *Expansion) Take(document []byte) error {
	aliases := bytes.Count(document, []byte("*"))
	if aliases == 0 || !bytes.Contains(document, []byte("&")) {
		return nil
	}
	var parsed yaml.Node
	if err := yaml.Unmarshal(document, &parsed); err == nil {
		x.left -= min(expanded(&parsed, x.most, map[*yaml.Node]int{}), x.most+1)
	} else {
		// Another parser may be able to read it. At worst each alias stands for all that is in front of it.
		const enough = 30
		x.left -= min(len(document)<<min(aliases, enough), x.most+1)
	}
	if x.left < 0 {
		return fmt.Errorf("the documents up to this one exceed %d MiB %w", x.most>>20, ErrExpansion)
	}
	return nil
}

// expanded returns about how many bytes a node takes as JSON and in memory, at most a little more than a bound. Known are the nodes that
// aliases name.
func expanded(n *yaml.Node, most int, known map[*yaml.Node]int) int {
	if size, ok := known[n]; ok {
		return size
	}
	if n.Anchor != "" {
		known[n] = 0 // for an alias of what it is in, which no reader accepts
	}
	const perNode = 8
	size := perNode + len(n.Value)
	if n.Alias != nil {
		size += expanded(n.Alias, most, known)
	}
	for _, child := range n.Content {
		if size += expanded(child, most, known); size > most {
			break
		}
	}
	if n.Anchor != "" {
		known[n] = size
	}
	return size
}
