"""Values of options that many kinds share, in the order in which a shop lists them."""

FABRIC_COLORS = (
    "black", "charcoal grey", "light grey", "ivory", "white", "navy blue", "sky blue", "dusty rose", "burgundy",
    "olive green", "forest green", "mustard yellow", "rust", "camel", "lavender", "teal",
)  # fmt: skip
GADGET_COLORS = (
    "black", "white", "space grey", "silver", "navy blue", "sky blue", "mint green", "sage green", "coral", "lilac",
    "sand", "red",
)  # fmt: skip
HOME_COLORS = (
    "white", "cream", "beige", "light grey", "dark grey", "black", "navy blue", "dusty blue", "sage green",
    "emerald green", "terracotta", "blush pink", "mustard yellow", "chocolate brown",
)  # fmt: skip
LETTER_SIZES = ("x-small", "small", "medium", "large", "x-large", "xx-large", "3x-large")
WOMENS_SHOES = ("5.5", "6", "6.5", "7", "7.5", "8", "8.5", "9", "9.5", "10", "11")
MENS_SHOES = ("7", "7.5", "8", "8.5", "9", "9.5", "10", "10.5", "11", "12", "13")
