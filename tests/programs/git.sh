#!/usr/bin/env bash
# git: a history made of real sources, far checkouts, merges, clones of all kinds, gc, fsck. The same
# commits, packs and files as on ext4.
set -euo pipefail
# shellcheck source=tests/programs/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
prepare git "$(by_size 512M 1G)" git:git

# Nobody's own settings, and the same times everywhere.
crates_home=${CARGO_HOME:-$HOME/.cargo}
export HOME=$SCRATCH GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000'
git config --global user.name Lode
git config --global user.email lode@example.org
git config --global init.defaultBranch main
git config --global safe.directory '*'
git config --global gc.auto 0
# Packs made by several threads differ from run to run.
git config --global pack.threads 1
git config --global advice.detachedHead false
# The index holds inode numbers and times.
LISTING=(--without index)

# Sources of crates, sorted by name, so that versions of one follow each other.
mapfile -t crates < <(find "$crates_home"/registry/src -mindepth 2 -maxdepth 2 -type d 2>/dev/null |
    sort | head -"$(by_size 30 100)")
[ ${#crates[@]} -ge 20 ] || skip "git: cargo has no sources of crates to make a history of"
commits=$(by_size 6 10)

# Each commit has a window of the crates; the second half of the history has them elsewhere.
make_history() {
    local step at width=$((${#crates[@]} / 2)) top crate name
    git init -q "$1"
    cd "$1"
    for ((step = 1; step <= commits; step++)); do
        top=crates
        [ $((step * 2)) -le "$commits" ] || top=vendor/sources
        git rm -r -q --cached . >/dev/null 2>&1 || true
        rm -rf crates vendor
        mkdir -p $top
        at=$(((step - 1) * (${#crates[@]} - width) / (commits - 1)))
        for crate in "${crates[@]:at:width}"; do
            # Without its version: the next version's files take the place of these.
            name=$(basename "$crate" | sed 's/-[0-9].*//')
            mkdir -p "$top/$name"
            cp -r "$crate/." "$top/$name/"
        done
        git add --all --force
        git commit -q -m "step $step"
        git tag "step-$step"
    done
}

# Checks out commits back and forth, and compares what is there with what was committed.
far_checkouts() {
    local tag
    for tag in step-1 "step-$commits" step-2 "step-$((commits / 2))" step-1 main; do
        git checkout -q "$tag"
        git status --porcelain
        git diff --exit-code
        [ "$(git write-tree)" = "$(git rev-parse "$tag^{tree}")" ] || echo "$tag: another tree"
    done
}

# append LINE FIRST LAST: to source files that are in the last two steps, so that a merge has text to merge.
append() {
    local file
    comm -12 <(git ls-tree -r --name-only "step-$((commits - 1))" | sort) \
        <(git ls-tree -r --name-only "step-$commits" | sort) >"$SCRATCH/common"
    grep '\.rs$' "$SCRATCH/common" | sed -n "$2,$3p" | while read -r file; do echo "$1" >>"$file"; done
    git commit -q -a -m "$1"
}

merges() {
    git checkout -q -b left "step-$commits"
    append "// left" 1 60
    git checkout -q -b right "step-$((commits - 1))"
    git mv "$(grep -m1 'Cargo\.toml$' "$SCRATCH/common")" moved.toml
    append "// right" 30 90
    git merge -q -X ours -m merged left
    echo scratch >>moved.toml
    git stash -q
    git checkout -q -b again "step-$commits"
    append "// again" 100 120
    git rebase -q right
    git checkout -q left
    git cherry-pick again >/dev/null
    git checkout -q right
    git stash pop -q
    git checkout -q moved.toml
    git status --porcelain
}

clones() {
    git clone -q --local "$1" local
    echo "hard links: $(find local/.git/objects -type f -links +1 | wc -l)"
    git clone -q --shared "$1" shared
    git clone -q --no-local "file://$PWD/$1" copied
    git clone -q --mirror "file://$PWD/$1" mirror.git
    local clone
    for clone in local shared copied mirror.git; do
        git -C $clone fsck --full --strict --no-progress
        git -C $clone rev-parse HEAD
    done
    git -C copied checkout -q step-1
    git -C copied push -q origin HEAD:refs/heads/pushed
    git -C "$1" worktree add -q "$PWD/tree" step-2
    git -C tree status --porcelain
    git -C "$1" worktree remove "$PWD/tree"
}

describe() {
    git for-each-ref
    git count-objects -v | grep -v ^size
    cat .git/packed-refs
    git fsck --full --strict --no-progress
    git verify-pack .git/objects/pack/*.idx
    find .git/objects -type f | sort
}

life_of_a_repository() {
    make_history repository
    far_checkouts
    merges
    cd ..
    clones repository
    cd repository
    git repack -q -a -d
    git gc --quiet --aggressive --prune=now
    far_checkouts
    describe
    echo "$(git rev-list --all --objects | wc -l) objects, $(git ls-files | wc -l) files checked out" >&3
}
on_both life_of_a_repository

# This project's own history, where it has one.
own_history() {
    git clone -q --no-local "file://$LODE_ROOT" own
    cd own
    local far
    for far in "$(git rev-list --max-parents=0 HEAD | tail -1)" "$(git rev-parse HEAD)"; do
        git checkout -q "$far"
        git status --porcelain
    done
    git gc --quiet --prune=now
    git fsck --full --strict --no-progress
    git rev-parse HEAD 'HEAD^{tree}'
}
if [ "$(by_size quick all)" = all ] && git -C "$LODE_ROOT" rev-parse --git-dir >/dev/null 2>&1; then
    # Its packs are made by the clone of that moment: only what is checked out is compared.
    LISTING=(--without .git)
    on_both own_history
fi
done_well "$(git --version)"
