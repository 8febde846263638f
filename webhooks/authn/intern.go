package authn

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// sharedIdentity is an identity that many tokens may prove.
type sharedIdentity struct {
	// user has everything but the extra.
	user authenticationv1.UserInfo
	// extra is sorted by key. A map, which an answer needs, takes six times the
	// memory, and there may be one for each of a hundred thousand tokens.
	extra []extraValue
}

type extraValue struct {
	key    string
	values []string
}

// info returns the identity for an answer. Its lists are shared.
func (i *sharedIdentity) info() *authenticationv1.UserInfo {
	if len(i.extra) == 0 {
		return &i.user
	}
	u := i.user
	u.Extra = make(map[string]authenticationv1.ExtraValue, len(i.extra))
	for _, e := range i.extra {
		u.Extra[e.key] = e.values
	}
	return &u
}

// interner makes copies of identities in which equal strings, lists and identities are
// stored once. Strings are stored in a few large blocks, because a hundred thousand small
// ones cost more in the heap than their length. Its results must not be written to.
//
// It is needed while tokens are compiled, and then dropped.
type interner struct {
	strings    map[string]string
	lists      map[string][]string
	identities map[string]*sharedIdentity
	block      *strings.Builder
	key        []byte
}

// blockBytes is the size of a block of strings. The rest of a block that is too short for
// the next string is wasted.
const blockBytes = 64 << 10

func newInterner() *interner {
	return &interner{
		strings:    map[string]string{},
		lists:      map[string][]string{},
		identities: map[string]*sharedIdentity{},
		block:      new(strings.Builder),
	}
}

// copy returns a copy of a string that is not expected twice.
func (s *interner) copy(text string) string {
	if s.block.Cap()-s.block.Len() < len(text) {
		s.block = new(strings.Builder)
		s.block.Grow(max(blockBytes, len(text)))
	}
	// The builder has the capacity, so its earlier strings stay where they are.
	start := s.block.Len()
	s.block.WriteString(text)
	return s.block.String()[start:]
}

// string returns a copy of a string.
func (s *interner) string(text string) string {
	if known, ok := s.strings[text]; ok {
		return known
	}
	own := s.copy(text)
	s.strings[own] = own
	return own
}

// list returns a copy of a list without spare capacity, nil of an empty one.
func (s *interner) list(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	s.key = appendStrings(s.key[:0], list)
	if known, ok := s.lists[string(s.key)]; ok {
		return known
	}
	own := make([]string, len(list))
	for i, text := range list {
		own[i] = s.string(text)
	}
	s.lists[string(s.key)] = own
	return own
}

// identity returns a copy of an identity.
func (s *interner) identity(u *authenticationv1.UserInfo) *sharedIdentity {
	s.key = appendIdentity(s.key[:0], u)
	if known, ok := s.identities[string(s.key)]; ok {
		return known
	}
	own := new(sharedIdentity)
	s.identities[string(s.key)] = own // before the key is overwritten
	own.user = authenticationv1.UserInfo{
		Username: s.copy(u.Username),
		UID:      s.copy(u.UID),
		Groups:   s.list(u.Groups),
	}
	if len(u.Extra) > 0 {
		own.extra = make([]extraValue, 0, len(u.Extra))
		for _, key := range slices.Sorted(maps.Keys(u.Extra)) {
			own.extra = append(own.extra, extraValue{s.string(key), s.list(u.Extra[key])})
		}
	}
	return own
}

// appendIdentity appends a unique encoding of an identity.
func appendIdentity(to []byte, u *authenticationv1.UserInfo) []byte {
	to = appendString(to, u.Username)
	to = appendString(to, u.UID)
	to = appendStrings(to, u.Groups)
	if len(u.Extra) > 0 {
		for _, key := range slices.Sorted(maps.Keys(u.Extra)) {
			to = appendStrings(appendString(to, key), u.Extra[key])
		}
	}
	return to
}

// appendStrings appends a list with its length in front.
func appendStrings(to []byte, list []string) []byte {
	to = binary.AppendUvarint(to, uint64(len(list)))
	for _, text := range list {
		to = appendString(to, text)
	}
	return to
}

// appendString appends a string with its length in front.
func appendString(to []byte, text string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(text))), text...)
}
