// Package ldap checks passwords with LDAP and Active Directory services, and
// finds the groups of their users.
//
// A login searches the entry of the name that was typed, with an account of our
// own, then binds as that entry with the password. What goes on from there is
// what the entry says; what was typed is never more than an escaped value in a
// filter. All that is asked goes over TLS, and referrals are not followed.
//
// Every search and every password has a connection of its own that is bound once, for
// it, and closed: no search ever runs as a user, and no bind changes who searches.
package ldap
