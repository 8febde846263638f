package jwt

import "context"

// StaticKeys are keys that never change.
type StaticKeys []Key

// Find implements Keys.
func (s StaticKeys) Find(_ context.Context, id string) ([]Key, error) {
	if id == "" {
		return s, nil
	}
	for i := range s {
		if s[i].ID == id {
			// An id is that of one key, or of several of different types.
			found := s[i : i+1 : i+1]
			for j := i + 1; j < len(s); j++ {
				if s[j].ID == id {
					found = append(found, s[j])
				}
			}
			return found, nil
		}
	}
	return nil, nil
}
