# Packages from where this machine gets its own: sourced by the scripts that unpack them. No host is named here; which
# ones there are, apt says. Nothing is installed and the machine's own lists are left alone.

archive_of() { # the archive that holds SUITE (or, for a suite this machine does not use, the one of its own release)
  apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
    awk -v suite="$1" '$1 == suite {print $2; found = 1; exit} NR == 1 || $1 !~ /-/ {own = $2} END {if (!found && own) print own}'
}

own_release() { (. /etc/os-release && echo "$VERSION_CODENAME"); }

private_index() { # FOLDER SUITE [src]: an index of SUITE in FOLDER; afterwards "${private_apt[@]}" are apt's options for it
  local folder=$1 suite=$2 archive
  archive=$(archive_of "$suite")
  [ -n "$archive" ] || { echo "apt: this machine has no package sources configured" >&2; return 1; }
  mkdir -p "$folder/lists/partial" "$folder/archives/partial"
  echo "deb $archive $suite main" >"$folder/sources.list"
  [ "${3:-}" != src ] || echo "deb-src $archive $suite main" >>"$folder/sources.list"
  private_apt=(-qq -o Dir::Etc::sourcelist="$folder/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$folder/lists"
    -o Dir::Cache::archives="$folder/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root)
  apt-get "${private_apt[@]}" update
}
