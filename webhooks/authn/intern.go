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

// info is the identity as an answer has it. Its lists are shared.
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

// sharing makes copies of identities that share what they have in common: of
// equal texts, lists and identities there is one. Texts stand one behind the
// other in a few large blocks, because a hundred thousand small ones cost more in
// the heap than they are long. Nothing that it gives may be written to.
//
// It is needed while tokens are compiled, and then dropped.
type sharing struct {
	texts      map[string]string
	lists      map[string][]string
	identities map[string]*sharedIdentity
	block      *strings.Builder
	key        []byte
}

// blockBytes is the size of a block of texts. What is left at the end of one is
// wasted, less than a text's length.
const blockBytes = 64 << 10

func newSharing() *sharing {
	return &sharing{
		texts:      map[string]string{},
		lists:      map[string][]string{},
		identities: map[string]*sharedIdentity{},
		block:      new(strings.Builder),
	}
}

// copied is a copy of a text that is not expected twice.
func (s *sharing) copied(text string) string {
	if s.block.Cap()-s.block.Len() < len(text) {
		s.block = new(strings.Builder)
		s.block.Grow(max(blockBytes, len(text)))
	}
	// The builder has room, so what it has given out stays where it is.
	start := s.block.Len()
	s.block.WriteString(text)
	return s.block.String()[start:]
}

// text is a copy of a text.
func (s *sharing) text(text string) string {
	if known, ok := s.texts[text]; ok {
		return known
	}
	own := s.copied(text)
	s.texts[own] = own
	return own
}

// list is a copy of a list, nil of an empty one, with no room behind it.
func (s *sharing) list(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	s.key = appendTexts(s.key[:0], list)
	if known, ok := s.lists[string(s.key)]; ok {
		return known
	}
	own := make([]string, len(list))
	for i, text := range list {
		own[i] = s.text(text)
	}
	s.lists[string(s.key)] = own
	return own
}

// identity is a copy of an identity.
func (s *sharing) identity(u *authenticationv1.UserInfo) *sharedIdentity {
	s.key = appendIdentity(s.key[:0], u)
	if known, ok := s.identities[string(s.key)]; ok {
		return known
	}
	own := new(sharedIdentity)
	s.identities[string(s.key)] = own // before the key is another's
	own.user = authenticationv1.UserInfo{
		Username: s.copied(u.Username),
		UID:      s.copied(u.UID),
		Groups:   s.list(u.Groups),
	}
	if len(u.Extra) > 0 {
		own.extra = make([]extraValue, 0, len(u.Extra))
		for _, key := range slices.Sorted(maps.Keys(u.Extra)) {
			own.extra = append(own.extra, extraValue{s.text(key), s.list(u.Extra[key])})
		}
	}
	return own
}

// appendIdentity appends all of an identity, so that no two different ones read
// the same.
func appendIdentity(to []byte, u *authenticationv1.UserInfo) []byte {
	to = appendText(to, u.Username)
	to = appendText(to, u.UID)
	to = appendTexts(to, u.Groups)
	if len(u.Extra) > 0 {
		for _, key := range slices.Sorted(maps.Keys(u.Extra)) {
			to = appendTexts(appendText(to, key), u.Extra[key])
		}
	}
	return to
}

// appendTexts appends a list with its length in front.
func appendTexts(to []byte, list []string) []byte {
	to = binary.AppendUvarint(to, uint64(len(list)))
	for _, text := range list {
		to = appendText(to, text)
	}
	return to
}

// appendText appends a text with its length in front.
func appendText(to []byte, text string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(text))), text...)
}
