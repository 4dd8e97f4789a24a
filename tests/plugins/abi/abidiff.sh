#!/bin/sh
# abidiff.sh FOLDER: whether today's header is that of the recorded 1.0, by libabigail's abidiff, over the libraries of
# reached.c; and whether it would notice a struct that has grown, and a member that has moved.
command -v abidiff > /dev/null || { echo "not run: abidiff is not installed (Debian: abigail-tools)"; exit 77; }
cd "$1" || exit 1
abidiff reached_recorded.so reached_today.so || { echo "the contract of 1.0 has changed"; exit 1; }
for control in newer moved; do
    said=$(abidiff reached_recorded.so reached_$control.so) && { echo "reached_$control.so is not noticed"; exit 1; }
    case $control in newer) member=added_in_1_1 ;; moved) member=inserted ;; esac
    echo "$said" | grep -q "$member" || { echo "$said"; echo "$control: '$member' is not named"; exit 1; }
done
echo "today's header is that of 1.0"
